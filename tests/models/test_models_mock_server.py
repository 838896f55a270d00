"""The mock as a real process, asked by OpenAI's own client and by raw sockets."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam

from runner.models import SAMPLE_HEADER, mock_command
from tests.integration.model_process import RunningModel, running

SCRIPT = """
[[rules]]
when = { user = "^rate limited" }
error = { status = 429, code = "rate_limit_exceeded", message = "Slow down.", headers = { retry-after = "7" } }

[[rules]]
when = { user = "^context" }
error = { status = 400, code = "context_budget_exceeded", message = "Too long." }

[[rules]]
when = { user = "^no choices" }
raw = { body = '{"id": "x", "object": "chat.completion", "created": 0, "model": "m", "choices": []}' }

[[rules]]
when = { user = "^garbage" }
raw = { body = "<html>", status = 502, content_type = "text/html" }

[[rules]]
when = { user = "^drop (before|midway)" }
drop = "before"

[[rules]]
when = { user = "^cut" }
drop = "midway"

[[rules]]
when = { user = "^call" }
reply.text = "I call."
reply.tool_calls = [{ name = "f", arguments = { a = 1 } }, { name = "g", raw_arguments = "{no" }]

[[rules]]
when = { user = "^slow" }
reply = { text = "late" }
latency_s = 30
"""

TOOLS: list[ChatCompletionToolParam] = [
    {
        "type": "function",
        "function": {
            "name": "multiply",
            "parameters": {
                "type": "object",
                "properties": {"left": {"type": "number"}, "right": {"type": "number"}},
                "required": ["left", "right"],
            },
        },
    }
]


@pytest.fixture(scope="module")
def default_mock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningModel]:
    with running(mock_command(), tmp_path_factory.mktemp("mock") / "stderr") as model:
        yield model


@pytest.fixture(scope="module")
def scripted_mock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningModel]:
    folder = tmp_path_factory.mktemp("scripted")
    (folder / "script.toml").write_text(SCRIPT)
    with running(mock_command(folder / "script.toml"), folder / "stderr") as model:
        yield model


@pytest.fixture
def default(default_mock: RunningModel) -> Iterator[openai.OpenAI]:
    with default_mock.client() as client:
        yield client


@pytest.fixture
def scripted(scripted_mock: RunningModel) -> Iterator[openai.OpenAI]:
    with scripted_mock.client() as client:
        yield client


def user(text: str) -> list[ChatCompletionMessageParam]:
    return [{"role": "user", "content": text}]


def ask(client: openai.OpenAI, text: str, **fields: Any) -> Any:
    return client.chat.completions.create(model="mock", messages=user(text), **fields)


def test_it_announces_a_loopback_address_and_its_model(default_mock: RunningModel) -> None:
    assert default_mock.announcement.model == "mock"
    assert default_mock.base_url.startswith("http://127.0.0.1:")


def test_models_are_listed(default: openai.OpenAI) -> None:
    assert [model.id for model in default.models.list()] == ["mock"]


def test_a_question_is_answered_with_usage(default: openai.OpenAI) -> None:
    answer = ask(default, "What is 40 + 2?", extra_headers={SAMPLE_HEADER: "1"})
    assert "42" in answer.choices[0].message.content or "43" in answer.choices[0].message.content
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens > 0


def test_siblings_differ_and_a_repeated_run_is_the_same(default_mock: RunningModel, tmp_path: Path) -> None:
    def group(client: openai.OpenAI) -> list[str | None]:
        return [ask(client, "What is 19 + 23?").choices[0].message.content for _ in range(4)]

    with running(mock_command(), tmp_path / "stderr") as second, default_mock.client() as one, second.client() as two:
        first_run = group(one)
        assert len(set(first_run)) == 4
        assert group(two) == first_run


def test_the_sample_header_decides_instead_of_the_order(default: openai.OpenAI) -> None:
    def text(sample: str) -> str | None:
        answer = ask(default, "What is 18 + 24?", extra_headers={SAMPLE_HEADER: sample})
        content: str | None = answer.choices[0].message.content
        return content

    assert text("2") == text("2") != text("3")


def test_ids_are_the_same_for_the_same_conversation(default: openai.OpenAI) -> None:
    headers = {SAMPLE_HEADER: "1"}
    first, second = (ask(default, "6 * 7", tools=TOOLS, extra_headers=headers) for _ in range(2))
    assert first.id == second.id
    assert first.choices[0].message.tool_calls[0].id == second.choices[0].message.tool_calls[0].id


def test_a_tool_is_called_and_its_result_becomes_the_answer(default: openai.OpenAI) -> None:
    first = ask(default, "What is 6 * 7?", tools=TOOLS, extra_headers={SAMPLE_HEADER: "1"})
    call = first.choices[0].message.tool_calls[0]
    assert (first.choices[0].finish_reason, first.choices[0].message.content) == ("tool_calls", None)
    assert (call.function.name, json.loads(call.function.arguments)) == ("multiply", {"left": 6, "right": 7})
    messages: list[Any] = [
        *user("What is 6 * 7?"),
        first.choices[0].message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": '{"value": 1234}'},
    ]
    texts = [
        default.chat.completions.create(
            model="mock", messages=messages, tools=TOOLS, extra_headers={SAMPLE_HEADER: str(sample)}
        )
        .choices[0]
        .message.content
        for sample in range(4)
    ]
    assert sum("1234" in (text or "") for text in texts) == 3


def test_several_choices_are_several_samples(default: openai.OpenAI) -> None:
    answer = ask(default, "What is 11 + 31?", n=4)
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert len({choice.message.content for choice in answer.choices}) == 4


def test_a_streamed_answer_is_the_same_in_pieces(default: openai.OpenAI) -> None:
    headers = {SAMPLE_HEADER: "2"}
    whole = ask(default, "Tell me about\n\n prime  numbers. ", extra_headers=headers)
    fields = {"stream": True, "stream_options": {"include_usage": True}, "extra_headers": headers}
    chunks = list(ask(default, "Tell me about\n\n prime  numbers. ", **fields))
    texts = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert len(texts) > 5
    assert "".join(texts) == whole.choices[0].message.content
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
    assert chunks[-1].usage == whole.usage
    assert {chunk.id for chunk in chunks} == {whole.id}


def test_streamed_tool_calls_add_up(scripted: openai.OpenAI) -> None:
    names: dict[int, str] = {}
    arguments: dict[int, str] = {}
    for chunk in ask(scripted, "call", stream=True):
        for call in chunk.choices[0].delta.tool_calls or ():
            names[call.index] = call.function.name or names[call.index]
            arguments[call.index] = arguments.get(call.index, "") + (call.function.arguments or "")
    assert names == {0: "f", 1: "g"}
    assert arguments == {0: '{"a": 1}', 1: "{no"}


def test_scripted_errors_reach_the_client_with_code_and_headers(scripted: openai.OpenAI) -> None:
    with pytest.raises(openai.RateLimitError, match=r"Slow down\.") as limited:
        ask(scripted, "rate limited")
    assert (limited.value.code, limited.value.response.headers["retry-after"]) == ("rate_limit_exceeded", "7")
    with pytest.raises(openai.BadRequestError) as full:
        ask(scripted, "context")
    assert full.value.code == "context_budget_exceeded"


def test_raw_bodies_are_sent_as_they_stand(scripted: openai.OpenAI) -> None:
    assert ask(scripted, "no choices").choices == []
    with pytest.raises(openai.InternalServerError) as failed:
        ask(scripted, "garbage")
    assert failed.value.response.text == "<html>"


@pytest.mark.parametrize("text", ["drop before", "cut"])
@pytest.mark.parametrize("stream", [False, True])
def test_dropped_connections_are_connection_errors(scripted_mock: RunningModel, text: str, stream: bool) -> None:
    body = {"model": "mock", "messages": user(text), "stream": stream}
    expected = "peer closed connection" if text == "cut" else "disconnected without sending a response"
    with pytest.raises(httpx.RemoteProtocolError, match=expected):
        httpx.post(f"{scripted_mock.base_url}/chat/completions", json=body)
    with scripted_mock.client() as client:
        assert ask(client, "still there?").choices[0].message.content


def test_a_request_that_is_refused_has_openais_error_shape(default_mock: RunningModel) -> None:
    refused = httpx.post(f"{default_mock.base_url}/chat/completions", json={"model": "mock", "messages": [{}]})
    assert refused.status_code == 400
    error = refused.json()["error"]
    assert (error["type"], error["param"], error["code"]) == (
        "invalid_request_error",
        "messages[0].role",
        "missing_required_parameter",
    )


@pytest.mark.parametrize(("method", "path", "status"), [("POST", "/nowhere", 404), ("GET", "/chat/completions", 405)])
def test_other_paths_and_methods_are_errors_in_the_same_shape(
    default_mock: RunningModel, method: str, path: str, status: int
) -> None:
    refused = httpx.request(method, default_mock.base_url + path)
    assert refused.status_code == status
    assert path in refused.json()["error"]["message"]


def test_a_body_beyond_the_limit_is_refused(default_mock: RunningModel) -> None:
    refused = httpx.post(f"{default_mock.base_url}/chat/completions", content=b" " * (32 * 1024 * 1024 + 1))
    assert refused.status_code == 413


def test_embeddings_are_deterministic_unit_vectors_and_near_for_shared_words(default: openai.OpenAI) -> None:
    texts = ["red cat", "red dog", "green house", "red cat"]
    vectors = [item.embedding for item in default.embeddings.create(model="e", input=texts).data]
    plain = default.embeddings.create(model="e", input="red cat", encoding_format="float").data[0].embedding

    def near(left: list[float], right: list[float]) -> float:
        return sum(a * b for a, b in zip(left, right, strict=True))

    assert near(vectors[0], vectors[0]) == pytest.approx(1)
    assert vectors[3] == vectors[0] == pytest.approx(plain)
    assert near(vectors[0], vectors[1]) > near(vectors[0], vectors[2])
    assert len(default.embeddings.create(model="e", input="x", dimensions=7).data[0].embedding) == 7


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": ""}, "input"),
        ({"input": []}, "input"),
        ({"input": ["a", 3]}, "input"),
        ({"input": "a", "dimensions": 0}, "dimensions"),
        ({"input": "a", "encoding_format": "hex"}, "encoding_format"),
        ({"input": "a", "model": None}, "model"),
    ],
)
def test_wrong_embedding_requests_are_refused(default_mock: RunningModel, fields: dict[str, Any], param: str) -> None:
    refused = httpx.post(f"{default_mock.base_url}/embeddings", json={"model": "e", **fields})
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == param


def test_sigterm_ends_it_at_once_even_with_a_request_in_flight(tmp_path: Path) -> None:
    (tmp_path / "script.toml").write_text(SCRIPT)
    with running(mock_command(tmp_path / "script.toml"), tmp_path / "stderr") as model:
        body = json.dumps({"model": "mock", "messages": user("slow")}).encode()
        with socket.create_connection(("127.0.0.1", model.port)) as waiting:
            head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: m\r\nContent-Length: {len(body)}\r\n\r\n"
            waiting.sendall(head.encode() + body)
            wait_for_log(tmp_path / "stderr", "answered")
            model.process.send_signal(signal.SIGTERM)
            assert model.process.wait(timeout=10) == -signal.SIGTERM


def test_nothing_is_written_to_stdout(tmp_path: Path) -> None:
    with running(mock_command(), tmp_path / "stderr") as model:
        with model.client() as client:
            ask(client, "hello")
        model.process.terminate()
        assert model.process.communicate()[0] == b""
    assert "answered model=mock" in (tmp_path / "stderr").read_text()


def test_a_script_that_cannot_be_used_ends_it_before_the_announcement(tmp_path: Path) -> None:
    (tmp_path / "script.json").write_text('{"rules": [{"reply": {}}]}')
    readable, writable = os.pipe()
    command = mock_command(tmp_path / "script.json", python=sys.executable)
    done = subprocess.run(command.argv(writable), pass_fds=[writable], env={}, capture_output=True, text=True)
    os.close(writable)
    with os.fdopen(readable, "rb") as announcements:
        assert announcements.read() == b""
    assert done.returncode == 2
    assert done.stderr.startswith("Mock script ")
    assert "rules[0].reply" in done.stderr
    assert done.stderr.count("\n") == 1


def wait_for_log(path: Path, text: str) -> None:
    """Read the log until the text is there; the test's own time-out is the limit."""
    with path.open() as log:
        seen = ""
        while text not in seen:
            seen += log.readline()
