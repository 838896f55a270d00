"""A gateway between real sockets: an endpoint that does what a test says, a client that writes bytes, and sessions."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from runner.gateway.exchange import CallTrace, ModelCall
from runner.gateway.gateway import Admit, Gateway
from runner.gateway.session import Session
from runner.limits import Limits

SECRET = "sk-real-4f9a8b7c6d5e4f3a2b1c"
MODEL = "some-model"
QUESTION: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "6 times 7?"}]}
PATIENCE_S = 20


@dataclass(frozen=True)
class Asked:
    """One request as the endpoint got it."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Wire:
    """The endpoint's end of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def whole(
        self,
        body: Any,
        status: int = 200,
        *,
        headers: Sequence[tuple[str, str]] = (),
        content_type: str = "application/json",
    ) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        lines = [f"HTTP/1.1 {status} X", f"content-type: {content_type}", f"content-length: {len(data)}"]
        lines += [f"{name}: {value}" for name, value in headers]
        await self.send("\r\n".join(lines).encode() + b"\r\n\r\n" + data)

    async def begin(self, *headers: tuple[str, str], content_type: str = "text/event-stream") -> None:
        lines = ["HTTP/1.1 200 OK", f"content-type: {content_type}", "transfer-encoding: chunked"]
        lines += [f"{name}: {value}" for name, value in headers]
        await self.send("\r\n".join(lines).encode() + b"\r\n\r\n")

    async def chunk(self, data: bytes) -> None:
        await self.send(b"%x\r\n%s\r\n" % (len(data), data))

    async def event(self, value: Any) -> None:
        text = value if isinstance(value, str) else json.dumps(value)
        await self.chunk(f"data: {text}\n\n".encode())

    async def end(self) -> None:
        await self.send(b"0\r\n\r\n")

    async def until_gone(self) -> None:
        """Wait until the gateway has closed its end."""
        with contextlib.suppress(ConnectionError):
            while await self.reader.read(65536):
                pass


Doing = Callable[[Asked, Wire], Awaitable[None]]


def completion(content: str = "42", *, usage: Mapping[str, int] | None = None) -> dict[str, Any]:
    """Return a chat completion."""
    message = {"role": "assistant", "content": content}
    told = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12} if usage is None else usage
    return {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": MODEL,
        "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
        "usage": told,
    }


def chunk(content: str | None = None, *, finish: str | None = None, **more: Any) -> dict[str, Any]:
    """Return one event of a streamed chat completion."""
    delta = {} if content is None else {"content": content}
    choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": MODEL, "choices": choices, **more}


async def answer_plainly(asked: Asked, wire: Wire) -> None:
    """Answer as a model would."""
    if asked.target.endswith("/models"):
        await wire.whole({"object": "list", "data": [{"id": MODEL, "object": "model"}]})
    elif asked.target.endswith("/embeddings"):
        await wire.whole({"object": "list", "data": [], "usage": {"prompt_tokens": 3, "total_tokens": 3}})
    elif asked.json.get("stream"):
        await wire.begin()
        for word in ("4", "2"):
            await wire.event(chunk(word))
        await wire.event(chunk(finish="stop"))
        if (asked.json.get("stream_options") or {}).get("include_usage"):
            usage = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}
            await wire.event({**chunk(), "choices": [], "usage": usage})
        await wire.event("[DONE]")
        await wire.end()
    else:
        await wire.whole(completion())


class Endpoint:
    """A model's server; `doing` may be replaced at any time."""

    def __init__(self) -> None:
        self.doing: Doing = answer_plainly
        self.asked: list[Asked] = []
        self.open = 0
        self.url = ""
        self._changed = asyncio.Condition()

    def script(self, *doings: Doing) -> None:
        """Do the n-th thing with the n-th request from now."""
        waiting = iter(doings)

        async def next_one(asked: Asked, wire: Wire) -> None:
            await next(waiting)(asked, wire)

        self.doing = next_one

    async def until(self, reached: Callable[[], bool]) -> None:
        """Wait for requests or connections."""
        async with asyncio.timeout(PATIENCE_S), self._changed:
            await self._changed.wait_for(reached)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._note(1)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                method, target, _ = head[0].split(" ", 2)
                pairs = [line.split(": ", 1) for line in head[1:] if line]
                headers = {name.lower(): value for name, value in pairs}
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                asked = Asked(method, target, headers, body)
                self.asked.append(asked)
                await self._note(0)
                await self.doing(asked, Wire(reader, writer))
                if writer.is_closing():
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.transport.abort()
            await self._note(-1)

    async def _note(self, opened: int) -> None:
        self.open += opened
        async with self._changed:
            self._changed.notify_all()


@dataclass
class Keys:
    """Credentials as a caller may have them: one key after another."""

    keys: list[str] = field(default_factory=lambda: [SECRET])
    worth_another_try: bool = False
    told: list[Mapping[str, str]] = field(default_factory=list)
    calls: list[ModelCall] = field(default_factory=list)

    async def headers(self, call: ModelCall) -> Mapping[str, str]:
        self.calls.append(call)
        return {"Authorization": f"Bearer {self.keys[0]}"}

    async def rejected(self, call: ModelCall, headers: Mapping[str, str]) -> bool:
        self.told.append(headers)
        if self.worth_another_try:
            self.keys = self.keys[1:] or self.keys
        return self.worth_another_try


@dataclass
class Lab:
    """An endpoint, a gateway before it, and what came out of it."""

    endpoint: Endpoint
    gateway: Gateway
    origin: str
    traces: list[CallTrace]
    keys: Keys

    def open(self, session_id: str = "r", **options: Any) -> Session:
        upstream = options.pop("upstream", None) or self.gateway.upstream(self.endpoint.url, self.keys)
        options.setdefault("rollout_id", session_id)
        options.setdefault("base_url", self.endpoint.url)
        return self.gateway.open(session_id, upstream, **options)

    def url(self, session: Session) -> str:
        return self.origin + session.path

    async def post(
        self, session: Session, body: Any = None, *, path: str | None = None, key: str | None = None, **headers: str
    ) -> Answered:
        """Ask for a chat completion over a connection of its own."""
        data = body if isinstance(body, bytes) else json.dumps(QUESTION if body is None else body).encode()
        path = f"{session.path}/chat/completions" if path is None else path
        return await self.ask("POST", path, key=session.key if key is None else key, body=data, headers=headers)

    async def keep_busy(self) -> None:
        """Return when whatever could go on has gone on for a while."""
        for _ in range(40):
            await self.exchange(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")

    async def ask(
        self, method: str, target: str, *, key: str | None, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> Answered:
        lines = [f"{method} {target} HTTP/1.1", "host: gateway", f"content-length: {len(body)}", "connection: close"]
        if key is not None:
            lines.append(f"authorization: Bearer {key}")
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in (headers or {}).items()]
        return await self.exchange("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)

    async def exchange(self, sent: bytes) -> Answered:
        """Send bytes and read until the gateway closes the connection."""
        async with self.client() as client:
            await client.send(sent)
            return await client.answer()

    @contextlib.asynccontextmanager
    async def asking(self, session: Session, body: Any = None) -> AsyncIterator[RawClient]:
        """Ask for a chat completion, and leave it at that."""
        data = json.dumps(QUESTION if body is None else body).encode()
        head = (
            f"POST {session.path}/chat/completions HTTP/1.1\r\nhost: gateway\r\nconnection: close\r\n"
            f"authorization: Bearer {session.key}\r\ncontent-length: {len(data)}\r\n\r\n"
        )
        async with self.client() as client:
            await client.send(head.encode() + data)
            yield client

    @contextlib.asynccontextmanager
    async def client(self) -> AsyncIterator[RawClient]:
        """Connect."""
        host, port = self.origin.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            yield RawClient(reader, writer)
        finally:
            writer.transport.abort()


class RawClient:
    """One connection to the gateway, which says whatever a test says."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.got = b""

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def until(self, text: bytes) -> None:
        """Read until something has come."""
        async with asyncio.timeout(PATIENCE_S):
            while text not in self.got:
                data = await self.reader.read(65536)
                assert data, self.got
                self.got += data

    async def answer(self) -> Answered:
        """Read until the gateway closes the connection."""
        async with asyncio.timeout(PATIENCE_S):
            self.got += await self.reader.read()
        return answered(self.got)


@dataclass(frozen=True)
class Answered:
    """One answer as a client got it."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> Any:
        return self.json["error"]["code"]

    @property
    def events(self) -> list[Any]:
        found = [line.removeprefix("data: ") for line in self.body.decode().split("\n") if line.startswith("data: ")]
        return [event if event == "[DONE]" else json.loads(event) for event in found]


def answered(data: bytes) -> Answered:
    """Read an answer from all bytes of a connection."""
    head, _, rest = data.partition(b"\r\n\r\n")
    status, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    if headers.get("transfer-encoding") == "chunked":
        rest = unchunked(rest)
    return Answered(int(status.split(" ")[1]) if status else 0, headers, rest)


def unchunked(data: bytes) -> bytes:
    """Return the body of a chunked answer, as far as it came."""
    body = b""
    while data:
        size, _, data = data.partition(b"\r\n")
        length = int(size, 16)
        body += data[:length]
        data = data[length + 2 :]
    return body


@contextlib.asynccontextmanager
async def endpoint() -> AsyncIterator[Endpoint]:
    """Serve an endpoint on loopback."""
    made = Endpoint()
    tasks: set[asyncio.Task[Any]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await made.serve(reader, writer)
        except asyncio.CancelledError:
            pass
        finally:
            tasks.discard(task)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=1024)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    try:
        yield made
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        while tasks:
            await asyncio.wait(tasks)
        await asyncio.sleep(0)  # a transport closes its socket in the turn after it is told to


def clean(text: str) -> str:
    """Take the secret out."""
    return text.replace(SECRET, "[redacted]")


@contextlib.asynccontextmanager
async def lab(*, admit: Admit | None = None, **limits: Any) -> AsyncIterator[Lab]:
    """Serve a gateway before an endpoint."""
    traces: list[CallTrace] = []
    async with endpoint() as served:
        gateway = Gateway(Limits(**limits), clean=clean, finished=traces.append, admit=admit)
        try:
            yield Lab(served, gateway, await gateway.listen(), traces, Keys())
        finally:
            await gateway.aclose()


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """Return two ends of a connection that do not block."""
    one, other = socket.socketpair()
    one.setblocking(False)
    other.setblocking(False)
    return one, other
