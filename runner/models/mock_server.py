"""The `mock` model: a scripted OpenAI-compatible server on loopback.

    python -m runner.models.mock_server [--script FILE] [--port P] --announce-fd N

It binds a port of 127.0.0.1, a free one unless told otherwise, and serves `POST /v1/chat/completions` (streamed or
not), `GET /v1/models` and `POST /v1/embeddings`. Once it accepts connections it writes one line of JSON to the
descriptor N and closes it: `{"base_url": "http://127.0.0.1:PORT/v1", "model": "mock"}`. It logs to stderr and ends at
once on SIGTERM. Any model name and any credential is accepted. The script's format: `runner.models.script`.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import logging
import os
import signal
import socket
import sys
from pathlib import Path
from types import FrameType
from typing import Final

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from runner.errors import UsageError
from runner.models.answer import Completion, answer
from runner.models.chat import BadRequestError, ChatRequest, decode_chat_request, decode_json_body
from runner.models.sample import SAMPLE_HEADER, SampleCounter, header_sample
from runner.models.script import HttpError, JsonValue, RawBody, Script, load_script
from runner.models.wire import (
    EMBEDDING_SIZE,
    completion_body,
    completion_events,
    embeddings_body,
    error_body,
    models_body,
)

MODEL: Final = "mock"

MAX_BODY_BYTES: Final = 32 * 1024 * 1024
"""One request; longer transcripts than any model takes, with room for images."""

MAX_EMBEDDING_SIZE: Final = 4096
MAX_EMBEDDING_TEXTS: Final = 2048
"""OpenAI's own limit for one request."""

BACKLOG: Final = 1024
"""Connections that may wait to be accepted: a large run opens all its rollouts' at once."""

logger = logging.getLogger("runner.models.mock_server")


class MockApp:
    """The endpoints, answering from one script.

    Args:
        script: The rules; `Script()` for the built-in answers.
    """

    def __init__(self, script: Script) -> None:
        self._script = script
        self._samples = SampleCounter()

    def application(self) -> Starlette:
        """Return the ASGI application."""
        return Starlette(
            routes=[
                Route("/v1/chat/completions", self._chat, methods=["POST"]),
                Route("/v1/models", self._models, methods=["GET"]),
                Route("/v1/embeddings", self._embeddings, methods=["POST"]),
            ],
            exception_handlers={HTTPException: _http_error, BadRequestError: _bad_request},
        )

    async def _chat(self, request: Request) -> Response:
        tree = await _json_body(request)
        chat = decode_chat_request(tree)
        content = json.dumps([tree.get(field) for field in ("model", "messages", "tools")], sort_keys=True)
        key = hashlib.sha256(content.encode()).hexdigest()
        sample = header_sample(request.headers.get(SAMPLE_HEADER), request.headers.get("Authorization"))
        if sample is None:
            sample = self._samples.next_sample(key)
        answers = [answer(self._script, chat, sample + index) for index in range(chat.n or 1)]
        first = answers[0]
        logger.info("answered model=%s turn=%d sample=%d rule=%s", chat.model, chat.turn, sample, first.rule)
        if first.latency_s:
            await asyncio.sleep(first.latency_s)
        match first.action:
            case HttpError() as error:
                body = error_body(error.status, error.message, kind=error.type, code=error.code)
                return JSONResponse(body, error.status, headers=error.headers)
            case RawBody() as raw:
                return Response(raw.body.encode("utf-8", "replace"), raw.status, media_type=raw.content_type)
            case "before" | "midway" as when:
                return DroppedResponse(midway=when == "midway", streamed=bool(chat.stream))
            case Completion():
                pass
        completions = [a.action for a in answers if isinstance(a.action, Completion)]
        return _completion_response(f"{key}/{sample}", chat, completions)

    async def _models(self, request: Request) -> Response:
        return JSONResponse(models_body([MODEL]))

    async def _embeddings(self, request: Request) -> Response:
        tree = await _json_body(request)
        model = tree.get("model")
        if not isinstance(model, str) or not model:
            raise BadRequestError("Missing required parameter: 'model'.", param="model")
        size = EMBEDDING_SIZE if tree.get("dimensions") is None else tree["dimensions"]
        if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= MAX_EMBEDDING_SIZE:
            raise BadRequestError(f"`dimensions` must be from 1 to {MAX_EMBEDDING_SIZE}.", param="dimensions")
        encoding = tree.get("encoding_format") or "float"
        if encoding not in {"float", "base64"}:
            raise BadRequestError("`encoding_format` must be `float` or `base64`.", param="encoding_format")
        texts = _embedding_texts(tree.get("input"))
        return JSONResponse(embeddings_body(model, texts, size=size, as_base64=encoding == "base64"))


class DroppedResponse(Response):
    """Closes the connection instead of answering, or in the middle of the answer."""

    def __init__(self, *, midway: bool, streamed: bool) -> None:
        super().__init__()
        self._midway = midway
        self._content_type = b"text/event-stream" if streamed else b"application/json"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send nothing or a first part, cut the connection, and wait until it is gone."""
        if self._midway:
            headers = [(b"content-type", self._content_type), (b"content-length", b"4096")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": b'data: {"id":', "more_body": True})
        transport = scope["state"]["transport"]
        if isinstance(transport, asyncio.Transport):
            # close() still sends what was written; the client then sees the end of the stream
            transport.close()
        while (await receive())["type"] != "http.disconnect":
            pass


class MockProtocol(H11Protocol):
    """Uvicorn's HTTP/1.1 protocol, which also shows the application its transport: ASGI has no word for "hang up"."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn itself
        """Remember the transport in the connection's state."""
        self.app_state = {**self.app_state, "transport": transport}
        super().connection_made(transport)


class MockServer(uvicorn.Server):
    """A server that says when it is ready, and that a signal ends at once.

    Args:
        config: Uvicorn's configuration.
        announce_fd: Descriptor that gets the announcement, and is closed afterwards.
    """

    def __init__(self, config: uvicorn.Config, announce_fd: int) -> None:
        super().__init__(config)
        self._announce_fd = announce_fd

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to accept connections, then announce the address."""
        await super().startup(sockets=sockets)
        if self.started and sockets:
            announce(self._announce_fd, sockets[0].getsockname()[1])

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End now: there is nothing to save, and whoever waits for an answer has been ended too."""
        signal.signal(sig, signal.SIG_DFL)
        signal.raise_signal(sig)


def announce(fd: int, port: int) -> None:
    """Write the address to the descriptor and close it."""
    line = json.dumps({"base_url": f"http://127.0.0.1:{port}/v1", "model": MODEL}) + "\n"
    with os.fdopen(fd, "wb") as stream:
        stream.write(line.encode())


def main(argv: list[str] | None = None) -> int:
    """Serve until a signal comes.

    Returns:
        1 for a port that is taken, 2 for a script that cannot be used.
    """
    parser = argparse.ArgumentParser(prog="python -m runner.models.mock_server", description="The mock model.")
    parser.add_argument("--script", type=Path, help="rules for the answers (JSON or TOML)")
    parser.add_argument("--announce-fd", type=int, required=True, help="descriptor for the address line")
    parser.add_argument("--port", type=int, default=0, help="port to listen on; 0 takes a free one")
    arguments = parser.parse_args(argv)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    try:
        script = load_script(arguments.script) if arguments.script else Script()
    except UsageError as exc:
        sys.stderr.write(f"{exc}\n")
        return 2
    # asyncio turns Nagle's algorithm off (40 ms per answer) only where the protocol is named
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    if arguments.port:
        # a port of one's own is wanted again right after a restart, while old connections still linger
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", arguments.port))
    except OSError as exc:
        listener.close()
        sys.stderr.write(f"The mock cannot listen on port {arguments.port}: {exc.strerror}.\n")
        return 1
    listener.listen(BACKLOG)
    config = uvicorn.Config(
        MockApp(script).application(),
        http=MockProtocol,
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,  # uvicorn's own sends the access log to stdout
        log_level="warning",
        server_header=False,
    )
    asyncio.run(MockServer(config, arguments.announce_fd).serve(sockets=[listener]))
    return 0


def _completion_response(key: str, chat: ChatRequest, completions: list[Completion]) -> Response:
    if not chat.stream:
        return JSONResponse(completion_body(key, chat.model, completions))
    include_usage = bool(chat.stream_options and chat.stream_options.include_usage)
    events = completion_events(key, chat.model, completions, include_usage=include_usage)
    return StreamingResponse(events, media_type="text/event-stream")


async def _json_body(request: Request) -> dict[str, JsonValue]:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise HTTPException(413, f"The body of the request has more than {MAX_BODY_BYTES} bytes.")
    return decode_json_body(bytes(body))


def _embedding_texts(value: JsonValue) -> list[str]:
    items = value if isinstance(value, list) and not all(isinstance(i, int) for i in value) else [value]
    texts: list[str] = []
    for item in items:
        if isinstance(item, list) and item and all(isinstance(token, int) for token in item):
            texts.append(" ".join(str(token) for token in item))  # a text given as token ids
        elif isinstance(item, str) and item:
            texts.append(item)
        else:
            raise BadRequestError("`input` must be a non-empty text or a list of them.", param="input")
    if len(texts) > MAX_EMBEDDING_TEXTS:
        raise BadRequestError(f"`input` has more than {MAX_EMBEDDING_TEXTS} texts.", param="input")
    return texts


async def _http_error(request: Request, exc: Exception) -> Response:
    status, message = (exc.status_code, exc.detail) if isinstance(exc, HTTPException) else (500, str(exc))
    if status in {404, 405}:
        message = f"There is no {request.method} {request.url.path} here."
    return JSONResponse(error_body(status, message), status)


async def _bad_request(request: Request, exc: Exception) -> Response:
    param, code = (exc.param, exc.code) if isinstance(exc, BadRequestError) else (None, None)
    return JSONResponse(error_body(400, str(exc), param=param, code=code), 400)


if __name__ == "__main__":
    sys.exit(main())
