"""The gateway within somebody else's server: a request of which only what ASGI says is known."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from runner.gateway.client import Message, Receive, Send


class HostedConnection:
    """The connection that a request came over, behind another server.

    Args:
        receive: As ASGI has it. Once the request's body is read, what is left to come is that the client has gone.
        send: As ASGI has it.
        cut: Closes the connection at once; `None` where the server offers no way to. Then the answer is broken off.
    """

    def __init__(self, receive: Receive, send: Send, cut: Callable[[], None] | None) -> None:
        self._receive = receive
        self._send = send
        self._cut = cut
        self._task = asyncio.current_task()
        self._work: asyncio.Task[Any] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._answered = False
        self._gone = False

    def scope(self, scope: Mapping[str, Any]) -> dict[str, Any]:
        """Return the request's scope as the application wants it."""
        return {**scope, "state": {"connection": self}}

    @contextlib.contextmanager
    def ending(self) -> Iterator[None]:
        """End quietly what was cancelled because its client has gone."""
        try:
            yield
        except asyncio.CancelledError:
            if not self._gone or self._task is None:
                raise
            self._task.uncancel()

    async def send(self, message: Message) -> None:
        """Send a part of the answer."""
        # a server says of a client that has all of its answer that it has gone, too
        self._answered = message["type"] == "http.response.body" and not message.get("more_body", False)
        await self._send(message)

    @property
    def work(self) -> asyncio.Task[Any] | None:
        """What is cancelled when the client goes; to be set when the body has been read."""
        return self._work

    @work.setter
    def work(self, task: asyncio.Task[Any] | None) -> None:
        self._work = task
        if task is not None and self._watching is None:
            self._watching = asyncio.ensure_future(self._watch())
        elif task is None and self._watching is not None:
            self._watching.cancel()
            self._watching = None

    async def _watch(self) -> None:
        message: Message = await self._receive()
        while message["type"] != "http.disconnect":
            message = await self._receive()
        if self._work is not None and not self._answered:
            self._gone = True
            self._work.cancel()

    def cut(self) -> None:
        """Close the connection at once."""
        if self._cut is not None:
            self._cut()
        elif self._task is not None:
            self._task.cancel()
