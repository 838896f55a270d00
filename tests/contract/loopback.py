"""A chat-completions server on the loopback interface, in a thread of its own so that tests may block."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Received:
    """One request as it arrived."""

    method: str
    target: str
    headers: dict[str, str]
    body: Any
    connection: int


@dataclass(frozen=True)
class Reply:
    """What to send back; `held` waits for `ModelServer.release`, `dropped` hangs up instead."""

    body: Any = None
    status: int = 200
    headers: Sequence[tuple[str, str]] = ()
    content_type: str = "application/json"
    held: bool = False
    dropped: bool = False


def completion(content: str | None = "42", *, finish: str | None = "stop", calls: Sequence[Any] = ()) -> Reply:
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if calls:
        message["tool_calls"] = list(calls)
    choice = {"index": 0, "finish_reason": finish, "message": message}
    return Reply({"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]})


def call(name: str, arguments: str, call_id: str = "c1") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def error(status: int, code: str | None, *, top_level: bool = False) -> Reply:
    inner = {"message": "no", "type": "t", "param": None, "code": code}
    return Reply(inner if top_level else {"error": inner}, status=status)


@dataclass
class ModelServer:
    """The running server; `answer` may be replaced at any time."""

    answer: Callable[[Received], Reply] = lambda received: completion()
    requests: list[Received] = field(default_factory=list)
    url: str = ""
    connections: int = 0
    open_connections: int = 0
    _arrived: threading.Condition = field(default_factory=threading.Condition)
    _released: asyncio.Event | None = None
    _loop: asyncio.AbstractEventLoop | None = None

    def script(self, *replies: Reply) -> None:
        """Answer the n-th request from now with the n-th reply."""
        pending = iter(replies)
        self.answer = lambda received: next(pending)

    def wait_for_requests(self, count: int) -> None:
        self._wait_until(lambda: len(self.requests) >= count)

    def wait_for_connections_left(self, count: int) -> None:
        self._wait_until(lambda: self.open_connections <= count)

    def _wait_until(self, reached: Callable[[], bool]) -> None:
        with self._arrived:
            assert self._arrived.wait_for(reached, timeout=30), (len(self.requests), self.open_connections)

    def release(self) -> None:
        """Send all held replies, and hold none from now on."""
        assert self._loop is not None
        assert self._released is not None
        self._loop.call_soon_threadsafe(self._released.set)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with self._arrived:
            self.connections += 1
            self.open_connections += 1
            number = self.connections
        try:
            while await self._exchange(reader, writer, number):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.transport.abort()
            with self._arrived:
                self.open_connections -= 1
                self._arrived.notify_all()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, target, _ = head[0].split(" ", 2)
        pairs = [line.split(": ", 1) for line in head[1:] if line]
        headers = {name.lower(): value for name, value in pairs}
        content = await reader.readexactly(int(headers.get("content-length", "0")))
        received = Received(method, target, headers, json.loads(content) if content else None, number)
        with self._arrived:
            self.requests.append(received)
            self._arrived.notify_all()
        reply = self.answer(received)
        if reply.held:
            assert self._released is not None
            gone = asyncio.ensure_future(reader.read(1))
            released = asyncio.ensure_future(self._released.wait())
            await asyncio.wait([gone, released], return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                released.cancel()
                return False
            gone.cancel()
            await asyncio.wait([gone])
        if reply.dropped:
            return False
        body = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
        lines = [
            f"HTTP/1.1 {reply.status} X",
            f"content-type: {reply.content_type}",
            f"content-length: {len(body)}",
            *(f"{name}: {value}" for name, value in reply.headers),
        ]
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        await writer.drain()
        return True


@contextmanager
def running_server(tls: ssl.SSLContext | None = None) -> Iterator[ModelServer]:
    server = ModelServer()
    ready = threading.Event()
    stop = asyncio.Event()

    async def run() -> None:
        server._loop = asyncio.get_running_loop()
        server._released = asyncio.Event()
        listener = await asyncio.start_server(server._serve, "127.0.0.1", 0, ssl=tls, backlog=1024)
        host, port = listener.sockets[0].getsockname()
        server.url = f"{'https' if tls else 'http'}://{host}:{port}/v1"
        ready.set()
        await stop.wait()
        listener.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        for _ in range(10):
            await asyncio.sleep(0)  # a transport closes its socket a few turns after it is told to

    thread = threading.Thread(target=asyncio.run, args=(run(),), name="loopback model server")
    thread.start()
    assert ready.wait(timeout=30)
    try:
        yield server
    finally:
        assert server._loop is not None
        server._loop.call_soon_threadsafe(stop.set)
        thread.join(timeout=30)
