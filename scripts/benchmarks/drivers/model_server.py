"""A model's server that costs as little as possible: a whole answer, or a stream of events.

Run as a program: prints its base URL, serves until its standard input ends. A request that has `"hold"` in it gets the
first event of its stream, and the rest when its standard input has a line.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any, ClassVar

from scripts.benchmarks.loopback import RESPONSE

EVENTS = 20
CHUNK = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}


def _event(value: object) -> bytes:
    text = b"data: " + (value.encode() if isinstance(value, str) else json.dumps(value).encode()) + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(text), text)


WORD = _event({**CHUNK, "choices": [{"index": 0, "delta": {"content": " word"}, "finish_reason": None}]})
LAST = _event({**CHUNK, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}) + _event("[DONE]")
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


class Answering(asyncio.Protocol):
    """Answers every request on a connection."""

    held: ClassVar[set[Answering]] = set()

    def __init__(self) -> None:
        self.transport: Any = None
        self.buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        self.held.discard(self)

    def data_received(self, data: bytes) -> None:
        """Answer each whole request."""
        self.buffer += data
        while (end := self.buffer.find(b"\r\n\r\n")) >= 0:
            head = self.buffer[:end].lower()
            at = head.find(b"content-length:")
            length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            if len(self.buffer) < end + 4 + length:
                return
            body = self.buffer[end + 4 : end + 4 + length]
            self.buffer = self.buffer[end + 4 + length :]
            if b'"stream"' not in body:
                self.transport.write(RESPONSE)
            elif b'"hold"' in body:
                self.held.add(self)
                self.transport.write(HEAD + WORD)
            else:
                self.transport.write(HEAD + WORD)
                asyncio.get_running_loop().call_soon(self.words, EVENTS - 1)

    def words(self, left: int) -> None:
        """Go on, an event at a time, as a model does."""
        if left:
            self.transport.write(WORD)
            asyncio.get_running_loop().call_later(0.0005, self.words, left - 1)
        else:
            self.transport.write(LAST + END)


def _release() -> None:
    for held in [*Answering.held]:
        held.transport.write(WORD * (EVENTS - 1) + LAST + END)
    Answering.held.clear()


async def serve() -> None:
    """Serve on a free port of the loopback interface."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Answering, "127.0.0.1", 0, backlog=2048)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    while await loop.run_in_executor(None, sys.stdin.readline):
        _release()
    server.close()


if __name__ == "__main__":
    asyncio.run(serve())
