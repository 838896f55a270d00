"""The local model as a real process: real weights from the package index, no key and no account."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from runner.models import LOCAL_MODEL, LOCAL_REQUIREMENTS, SAMPLE_HEADER, local_command
from tests.integration.model_process import RunningModel, running

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]

STORY = "Write a very long story about a fox."


@pytest.fixture(scope="module")
def local_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A venv with the weights and the server, and nothing else."""
    venv = tmp_path_factory.mktemp("local") / "venv"
    python = venv / "bin" / "python"
    uv = [sys.executable, "-m", "uv", "--quiet"]
    subprocess.run([*uv, "venv", "--no-config", "--python", sys.executable, str(venv)], check=True)
    install = [*uv, "pip", "install", "--no-config", "--no-deps", "--python", str(python), *LOCAL_REQUIREMENTS]
    subprocess.run(install, check=True)
    return python


@pytest.fixture(scope="module")
def local_model(local_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningModel]:
    with running(local_command(local_python, model=LOCAL_MODEL), tmp_path_factory.mktemp("log") / "stderr") as model:
        yield model


@pytest.fixture
def client(local_model: RunningModel) -> Iterator[openai.OpenAI]:
    with local_model.client() as client:
        yield client


def ask(client: openai.OpenAI, text: str, **fields: Any) -> Any:
    return client.chat.completions.create(model=LOCAL_MODEL, messages=[{"role": "user", "content": text}], **fields)


def post(server: RunningModel, **fields: Any) -> httpx.Response:
    body = {"model": LOCAL_MODEL, "messages": [{"role": "user", "content": "hi"}], **fields}
    return httpx.post(f"{server.base_url}/chat/completions", json=body, timeout=120)


def test_it_announces_and_lists_its_model(local_model: RunningModel, client: openai.OpenAI) -> None:
    assert local_model.announcement.model == LOCAL_MODEL
    assert [model.id for model in client.models.list()] == [LOCAL_MODEL]


def test_it_answers_a_simple_question(client: openai.OpenAI) -> None:
    answer = ask(client, "What is 3 + 4?", temperature=0, max_tokens=40)
    assert "7" in answer.choices[0].message.content
    assert answer.model == LOCAL_MODEL
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_temperature_zero_gives_the_same_answer_alone_and_in_parallel(client: openai.OpenAI) -> None:
    def text(number: int) -> str:
        content: str = ask(client, f"Count from {number} on.", temperature=0, max_tokens=40).choices[0].message.content
        return content

    alone = [text(number % 3) for number in range(6)]
    with ThreadPoolExecutor(6) as pool:
        together = list(pool.map(lambda number: text(number % 3), range(6)))
    assert alone[:3] == alone[3:] == together[:3] == together[3:]


def test_siblings_differ_and_the_same_sample_is_the_same(client: openai.OpenAI) -> None:
    def text(sample: int) -> str:
        answer = ask(
            client, "Name an animal and why you like it.", max_tokens=40, extra_headers={SAMPLE_HEADER: str(sample)}
        )
        content: str = answer.choices[0].message.content
        return content

    first = [text(sample) for sample in range(4)]
    assert len(set(first)) > 1
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(text, range(4))) == first
    uncounted = [ask(client, "Name a plant.", max_tokens=30).choices[0].message.content for _ in range(4)]
    assert len(set(uncounted)) > 1


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
def test_answers_are_capped_whatever_the_request_says(client: openai.OpenAI, field: str) -> None:
    answer = ask(client, STORY, temperature=0, **{field: 2000})
    assert answer.usage.completion_tokens == 256
    assert answer.choices[0].finish_reason == "length"
    assert ask(client, STORY, **{field: 5}).usage.completion_tokens == 5


def test_llama_cpps_own_length_field_does_not_lift_the_cap(local_model: RunningModel) -> None:
    messages = [{"role": "user", "content": STORY}]
    answer = post(local_model, messages=messages, temperature=0, n_predict=2000).json()
    assert answer["usage"]["completion_tokens"] == 256


def test_a_streamed_answer_is_the_same_in_pieces(client: openai.OpenAI) -> None:
    whole = ask(client, "Say something nice.", temperature=0, max_tokens=30)
    chunks = list(ask(client, "Say something nice.", temperature=0, max_tokens=30, stream=True))
    texts = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert len(texts) > 3
    assert "".join(texts) == whole.choices[0].message.content


def test_a_conversation_beyond_the_context_has_its_own_code(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, "word " * 9000)
    assert caught.value.code == "context_budget_exceeded"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": ""}, "model"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_completion_tokens": "5"}, "max_completion_tokens"),
    ],
)
def test_wrong_requests_are_refused_in_openais_shape(
    local_model: RunningModel, fields: dict[str, Any], param: str
) -> None:
    refused = post(local_model, **fields)
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == param
    assert refused.json()["error"]["type"] == "invalid_request_error"


def test_other_paths_and_bodies_are_errors_in_the_same_shape(local_model: RunningModel) -> None:
    assert httpx.get(f"{local_model.base_url}/nowhere").json()["error"]["message"]
    assert httpx.post(f"{local_model.base_url}/embeddings", json={}).status_code == 404
    url = f"{local_model.base_url}/chat/completions"
    assert httpx.post(url, content=b"{").status_code == 400
    assert httpx.post(url, content=b"[]").status_code == 400
    assert httpx.post(url, content=b" " * (4 * 1024 * 1024 + 1)).status_code == 413


def test_a_tool_conversation_is_answered_although_the_model_knows_no_tools(client: openai.OpenAI) -> None:
    messages: list[Any] = [
        {"role": "user", "content": "What is 6 * 7?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "multiply", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c", "content": "42"},
    ]
    tools: list[Any] = [{"type": "function", "function": {"name": "multiply", "parameters": {"type": "object"}}}]
    answer = client.chat.completions.create(model=LOCAL_MODEL, messages=messages, tools=tools, max_tokens=10)
    assert answer.choices[0].message.content


def test_work_for_clients_that_have_gone_is_stopped(local_model: RunningModel, client: openai.OpenAI) -> None:
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": STORY}], "n": 4}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: m\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    # 40 abandoned requests with 4 long answers each would keep the slots busy for minutes
    for _ in range(40):
        with socket.create_connection(("127.0.0.1", local_model.port)) as abandoned:
            abandoned.sendall(head + body)
    assert ask(client, "Say hi.", max_tokens=2, timeout=60).choices[0].message.content


def test_it_writes_nothing_to_stdout_and_sigterm_ends_it_at_once(local_python: Path, tmp_path: Path) -> None:
    with running(local_command(local_python, model="tiny", parallel=1), tmp_path / "stderr") as model:
        assert model.announcement.model == "tiny"
        with model.client() as client:
            ask(client, "hi", max_tokens=2)
        model.process.send_signal(signal.SIGTERM)
        assert model.process.wait(timeout=10) == -signal.SIGTERM
        assert model.process.communicate()[0] == b""


@pytest.mark.parametrize(
    ("binding", "said"),
    [
        (None, "No module named 'xllamacpp'."),
        ("libgomp.so.1: cannot open shared object file", "Install the system's package libgomp1 (Debian) or libgomp."),
    ],
)
def test_what_is_missing_is_one_line_on_stderr(tmp_path: Path, binding: str | None, said: str) -> None:
    if binding is not None:
        (tmp_path / "xllamacpp.py").write_text(f"raise ImportError({binding!r})\n")
    readable, writable = os.pipe()
    command = local_command(Path(sys.executable), model="tiny").argv(writable)
    env = {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, pass_fds=[writable], env=env, capture_output=True, text=True)
    os.close(writable)
    with os.fdopen(readable, "rb") as announcements:
        assert announcements.read() == b""
    assert done.returncode == 1
    assert done.stderr.startswith("The local model cannot be started: ")
    assert done.stderr.endswith(f"{said}\n")
    assert done.stderr.count("\n") == 1
