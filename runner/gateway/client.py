"""The client's side of one request: what it sends, bounded, and what it is answered, whole or piece by piece."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, MutableMapping
from typing import Any, Final, Protocol

from runner.gateway.exchange import UpstreamError
from runner.gateway.faults import Headers, RefusedError, error_body, error_event, error_headers
from runner.limits import GATEWAY_LINGER_S, GATEWAY_REQUEST_S

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_BEARER: Final = re.compile(r"bearer +([!-~]+)", re.IGNORECASE)


class Connection(Protocol):
    """The connection that a request came over."""

    work: asyncio.Task[Any] | None
    """What is cancelled when the client goes."""

    def cut(self) -> None:
        """Close it at once."""


class Client:
    """One request and its answer.

    Args:
        scope, receive, send: As ASGI has them; the scope's state has the `connection`.
    """

    __slots__ = ("_complete", "_connection", "_receive", "_scope", "_send", "started", "status", "streaming")

    def __init__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._connection: Connection = scope["state"]["connection"]
        self._complete = False
        self.started = False
        self.streaming = False
        self.status = 0

    @property
    def method(self) -> str:
        """The method, as it was sent."""
        return str(self._scope["method"])

    @property
    def target(self) -> str:
        """The path as it was sent, nothing decoded."""
        return bytes(self._scope["raw_path"]).decode("ascii")

    @property
    def query(self) -> str:
        """What follows the question mark."""
        return bytes(self._scope["query_string"]).decode("ascii")

    @property
    def headers(self) -> Iterable[tuple[bytes, bytes]]:
        """The request's headers."""
        return self._scope["headers"]  # type: ignore[no-any-return]  # as ASGI has it

    def bearer(self) -> str | None:
        """Return the key that it shows; `None` for none, or for several."""
        shown = [value for name, value in self.headers if name == b"authorization"]
        if len(shown) != 1:
            return None
        found = _BEARER.fullmatch(shown[0].decode("latin-1").strip(" \t"))
        return None if found is None else found[1]

    async def read(self, most: int, hold: Callable[[int], None]) -> bytes:
        """Return the request's body.

        Args:
            most: Its bytes at most.
            hold: Told of bytes that are about to be held; may refuse them.

        Raises:
            RefusedError: it is larger than `most`, comes too slowly, or is refused.
            ConnectionAbortedError: the client has gone.
        """
        announced = next((int(value) for name, value in self.headers if name == b"content-length"), None)
        if announced is not None:
            if announced > most:
                raise _too_large(most)
            hold(announced)
        pieces: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(GATEWAY_REQUEST_S):
                while True:
                    message = await self._receive()
                    if message["type"] == "http.disconnect":
                        raise ConnectionAbortedError
                    piece: bytes = message.get("body", b"")
                    size += len(piece)
                    if size > most:
                        raise _too_large(most)
                    if announced is None:
                        hold(len(piece))
                    pieces.append(piece)
                    if not message.get("more_body", False):
                        self._complete = True
                        return pieces[0] if len(pieces) == 1 else b"".join(pieces)
        except TimeoutError:
            raise RefusedError(
                f"the request's body did not come within {GATEWAY_REQUEST_S:g} s.", status=408, retry=True
            ) from None

    async def answer(self, status: int, headers: Headers, body: bytes) -> None:
        """Send a whole answer, whose length the headers give."""
        self.started = True
        self.status = status
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        if self._complete or not self._closes():
            await self._send({"type": "http.response.body", "body": body})
            return
        # closed now, what the client still sends would reset the connection, and it would not see the answer
        await self._send({"type": "http.response.body", "body": body, "more_body": True})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GATEWAY_LINGER_S):
                message = await self._receive()
                while message["type"] == "http.request" and message.get("more_body", False):
                    message = await self._receive()
        await self._send({"type": "http.response.body", "body": b""})

    def _closes(self) -> bool:
        """Whether the connection ends with this answer."""
        old = self._scope["http_version"] == "1.0"
        return old or any(name == b"connection" and b"close" in value.lower() for name, value in self.headers)

    async def begin(self, status: int, headers: Headers) -> None:
        """Begin an answer that is a stream of events."""
        self.started = self.streaming = True
        self.status = status
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def go_on(self, data: bytes) -> None:
        """Send a piece of the stream."""
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def finish(self) -> None:
        """End the stream."""
        self.streaming = False
        await self._send({"type": "http.response.body", "body": b""})

    async def fail(self, error: UpstreamError) -> bytes:
        """Tell an error: as the answer, or as the last event of a stream that has begun. Return what was told."""
        if not self.started:
            body = error_body(error)
            await self.answer(error.status, error_headers(error, body), body)
            return body
        if not self.streaming:
            return b""
        event = error_event(error)
        await self.go_on(event)
        await self.finish()
        return event

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Cancel the current task if the client goes."""
        task = self._connection.work = asyncio.current_task()
        try:
            yield
        finally:
            # the connection may be at its next request already
            if self._connection.work is task:
                self._connection.work = None

    def cut(self) -> None:
        """Close the connection at once."""
        self._connection.cut()


def _too_large(most: int) -> RefusedError:
    return RefusedError(f"the request has more than {most} bytes.", code="request_too_large", status=413)
