"""The embedding model as a real process: real weights from the package index, no key and no account."""

from __future__ import annotations

import asyncio
import base64
import math
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from runner.models import EMBEDDING_MODEL, EMBEDDING_REQUIREMENTS, LOCAL_FOLLOW_DEPENDENCIES, embedding_command
from runner.provision import Cache, provision_packages
from tests.integration.model_process import RunningModel, running

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]

SENTENCES = ["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium."]


@pytest.fixture(scope="module")
def embedding_python(shared_cache: Path) -> Path:
    """The interpreter of the venv in which the server runs for everybody else, too."""
    venv = asyncio.run(
        provision_packages(
            EMBEDDING_REQUIREMENTS, follow_dependencies=LOCAL_FOLLOW_DEPENDENCIES, cache=Cache(shared_cache)
        )
    )
    return venv.python


@pytest.fixture(scope="module")
def server(embedding_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningModel]:
    with running(embedding_command(embedding_python), tmp_path_factory.mktemp("log") / "stderr") as server:
        yield server


@pytest.fixture
def client(server: RunningModel) -> Iterator[openai.OpenAI]:
    with server.client() as client:
        yield client


def vectors(client: openai.OpenAI, texts: Any) -> list[list[float]]:
    return [item.embedding for item in client.embeddings.create(model=EMBEDDING_MODEL, input=texts).data]


def cosine(left: list[float], right: list[float]) -> float:
    return sum(a * b for a, b in zip(left, right, strict=True))


def test_it_announces_and_lists_its_model(server: RunningModel, client: openai.OpenAI) -> None:
    assert server.announcement.model == EMBEDDING_MODEL
    assert [model.id for model in client.models.list()] == [EMBEDDING_MODEL]


def test_it_computes_what_the_published_model_computes(client: openai.OpenAI) -> None:
    # the first numbers for this sentence, and the three similarities, as the model's own documentation shows them
    (vector,) = vectors(client, "This is an example sentence")
    assert vector[:4] == pytest.approx([0.0677, 0.0635, 0.0487, 0.0793], abs=5e-5)
    weather, sunny, stadium = vectors(client, SENTENCES)
    similarities = [cosine(weather, sunny), cosine(weather, stadium), cosine(sunny, stadium)]
    assert similarities == pytest.approx([0.6660, 0.1046, 0.1411], abs=5e-5)


def test_vectors_have_length_one_and_do_not_depend_on_their_neighbours(client: openai.OpenAI) -> None:
    texts = [*SENTENCES, "word " * 100, "é", "..."] * 6
    together = vectors(client, texts)
    assert {len(vector) for vector in together} == {384}
    assert all(math.isclose(math.hypot(*vector), 1, abs_tol=1e-5) for vector in together)
    assert together[3] == pytest.approx(vectors(client, [texts[3]])[0], abs=1e-5)
    assert together[0] == pytest.approx(together[6], abs=1e-5)


def test_a_text_is_cut_at_256_tokens(client: openai.OpenAI) -> None:
    answer = client.embeddings.create(model=EMBEDDING_MODEL, input=["word " * 1000, "word " * 2000])
    assert answer.usage.prompt_tokens == 2 * 256
    assert answer.data[0].embedding == pytest.approx(answer.data[1].embedding, abs=1e-6)


def test_base64_and_floats_are_the_same_numbers(server: RunningModel) -> None:
    def ask(**fields: Any) -> Any:
        body = {"model": "any name", "input": "text", **fields}
        return httpx.post(f"{server.base_url}/embeddings", json=body, timeout=60).json()

    floats, packed = ask(), ask(encoding_format="base64", dimensions=384)
    assert floats["object"] == "list"
    assert floats["model"] == EMBEDDING_MODEL
    unpacked = struct.unpack("<384f", base64.b64decode(packed["data"][0]["embedding"]))
    assert list(unpacked) == pytest.approx(floats["data"][0]["embedding"], abs=1e-7)
    assert ([item["index"] for item in floats["data"]], floats["usage"]["total_tokens"]) == ([0], 3)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": ""}, "model"),
        ({"input": None}, "input"),
        ({"input": ""}, "input"),
        ({"input": []}, "input"),
        ({"input": ["a", ""]}, "input"),
        ({"input": [1, 2]}, "input"),
        ({"input": [[1, 2]]}, "input"),
        ({"input": ["a"] * 2049}, "input"),
        ({"dimensions": 64}, "dimensions"),
        ({"encoding_format": "int8"}, "encoding_format"),
    ],
)
def test_wrong_requests_are_refused_in_openais_shape(server: RunningModel, fields: dict[str, Any], param: str) -> None:
    refused = httpx.post(f"{server.base_url}/embeddings", json={"model": "m", "input": "text", **fields}, timeout=60)
    assert refused.status_code == 400
    assert (refused.json()["error"]["param"], refused.json()["error"]["type"]) == (param, "invalid_request_error")


def test_other_paths_and_bodies_are_errors_in_the_same_shape(server: RunningModel) -> None:
    assert httpx.get(f"{server.base_url}/nowhere").json()["error"]["message"]
    assert httpx.post(f"{server.base_url}/chat/completions", json={"model": "m"}).status_code == 404
    url = f"{server.base_url}/embeddings"
    assert httpx.post(url, content=b"{").status_code == 400
    assert httpx.post(url, content=b" " * (4 * 1024 * 1024 + 1)).status_code == 413


def test_it_writes_nothing_to_stdout_and_sigterm_ends_it_at_once(embedding_python: Path, tmp_path: Path) -> None:
    with running(embedding_command(embedding_python, model="tiny"), tmp_path / "stderr") as model:
        assert model.announcement.model == "tiny"
        model.process.send_signal(signal.SIGTERM)
        assert model.process.wait(timeout=10) == -signal.SIGTERM
        assert model.process.communicate()[0] == b""


def said_by(command: list[str], writable: int) -> str:
    done = subprocess.run(command, pass_fds=[writable], env={}, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    return line


def test_what_is_missing_or_taken_is_one_line_on_stderr(embedding_python: Path) -> None:
    readable, writable = os.pipe()
    with os.fdopen(readable), os.fdopen(writable), socket.create_server(("127.0.0.1", 0)) as taken:
        missing = said_by(embedding_command(Path(sys.executable)).argv(writable), writable)
        port = taken.getsockname()[1]
        used = said_by(embedding_command(embedding_python, port=port).argv(writable), writable)
    assert missing.startswith("The embedding model cannot be started: No module named ")
    assert used.startswith("The embedding model cannot be started: ")
    assert "in use" in used


def test_it_needs_at_least_one_thread() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        embedding_command(Path("python"), threads=0)


# --- a server at a known address


@pytest.mark.parametrize("name", ["mock", "embeddings"])
def test_any_model_can_be_served_at_a_port_of_ones_own(shared_cache: Path, name: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "runner.models", name, "--port", str(port)]
    env = {**os.environ, "BENCHMAX_CACHE_DIR": str(shared_cache)}
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        base_url, model = process.stdout.readline().split()
        assert base_url == f"http://127.0.0.1:{port}/v1"
        with openai.OpenAI(base_url=base_url, api_key="any", max_retries=0) as client:
            assert [entry.id for entry in client.models.list()] == [model]
            assert client.embeddings.create(model=model, input="text").data[0].embedding
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 130
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["gpt"], 2, "There is no model `gpt`"),
        (["mock:/nowhere.json"], 2, "nowhere.json"),
        (["mock", "--port", "65536"], 2, "must be a port number"),
        (["mock", "--port", "x"], 2, "must be a port number"),
        (["mock", "--port", "TAKEN"], 3, "cannot listen on port"),
    ],
)
def test_what_cannot_be_served_is_said_in_the_last_line(
    tmp_path: Path, arguments: list[str], code: int, said: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        named = [str(taken.getsockname()[1]) if argument == "TAKEN" else argument for argument in arguments]
        env = {**os.environ, "BENCHMAX_CACHE_DIR": str(tmp_path)}
        command = [sys.executable, "-m", "runner.models", *named]
        done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr.splitlines()[-1]
