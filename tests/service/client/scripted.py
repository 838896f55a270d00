"""A server that answers what a test says, one request after the other, byte for byte."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Final

CUT: Final = b""
"""In place of an answer: the connection is closed."""


@dataclass(frozen=True)
class Seen:
    """A request as it came."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Scripted:
    """The server.

    Args:
        url: Where it is.
        answers: What is answered next, first one first; after the last one, connections are closed.
        seen: What was asked.
    """

    url: str
    answers: list[bytes]
    seen: list[Seen] = field(default_factory=list)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            method, target, _ = head[0].split(" ")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:-2])}
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            self.seen.append(Seen(method, target, headers, body))
            writer.write(self.answers.pop(0) if self.answers else CUT)
            await writer.drain()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


@contextlib.asynccontextmanager
async def scripted(*answers: bytes) -> AsyncIterator[Scripted]:
    """Start a server with these answers."""
    script = Scripted("", list(answers))
    server = await asyncio.start_server(script._serve, "127.0.0.1", 0)
    script.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield script


def answer(status: int, body: object = None, **headers: str) -> bytes:
    """Return an answer with JSON, or with text as it stands."""
    data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} Said", f"Content-Length: {len(data)}", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + data


def failure(status: int, code: str, message: str = "no.", hint: str = "", **headers: str) -> bytes:
    """Return an error as the service says it."""
    body = {"error": {"code": code, "message": message, "hint": hint}, "request_id": "req-1"}
    return answer(status, body, **headers)


def stream(*parts: str) -> bytes:
    """Return a stream of events that ends with its connection."""
    head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
    return (head + "".join(parts)).encode()


def event(number: int, kind: str = "phase", **data: object) -> str:
    """Return one event of a stream."""
    return f"id: {number}\nevent: {kind}\ndata: {json.dumps(data)}\n\n"
