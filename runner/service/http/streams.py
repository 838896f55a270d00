"""An answer that is a stream of events, from a number on until the job is over, the client goes or the server ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from runner.service.database import keys
from runner.service.database.rows import JobRow
from runner.service.http.access import Caller
from runner.service.http.bounds import CHUNK_BYTES, RECHECK_S, RETRY_MS
from runner.service.http.errors import HttpError, busy
from runner.service.http.exchange import KEY, Exchange
from runner.service.http.feed import END, Told, Watch

if TYPE_CHECKING:
    from runner.service.http.gate import Receive, Scope, Send
    from runner.service.http.state import ServiceState

ALIVE: Final = b": alive\n\n"
COME_BACK: Final = b"retry: %d\n\n" % RETRY_MS


class EventStream(Response):
    """The answer. A stream that says the same in other words has a `tell` of its own.

    Args:
        state: The service's parts.
        caller: Who watches.
        job: What.
        after: The last number that the client has.

    Attributes:
        at: The number of the last event that was sent.
        gone: Whether the client is.
    """

    media_type = "text/event-stream"

    def __init__(self, state: ServiceState, caller: Caller, job: JobRow, after: int) -> None:
        super().__init__()
        self.state = state
        self.caller = caller
        self.job = job
        # of a number that is yet to come nothing can have been seen
        self.at = min(after, job.last_seq)
        self.gone = False
        # proxies are told not to collect the stream before they pass it on
        self.raw_headers = [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"x-accel-buffering", b"no"),
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        exchange: Exchange = scope[KEY]
        with self._counted(), self.state.feed.watch(self.job) as watch:
            exchange.take_long()
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            # what is sent at once shows proxies and clients that it has begun
            await send({"type": "http.response.body", "body": ALIVE, "more_body": True})
            listening = asyncio.create_task(self._until_gone(receive, watch))
            try:
                await self.tell(watch, send)
            finally:
                listening.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await listening
            exchange.aborted = self.gone
            await send({"type": "http.response.body", "body": b""})

    async def tell(self, watch: Watch, send: Send) -> None:
        """Send events until there are no more, the client is gone, or the server is about to end.

        Args:
            watch: Has the events, and wakes whoever waits for more; also when the client goes and the server ends.
            send: Sends a part of the body; the head is sent.
        """
        state = self.state
        loop = asyncio.get_running_loop()
        checked = loop.time()
        while not self.gone:
            ready = await watch.after(self.at)
            for part in _parts(ready):
                await send({"type": "http.response.body", "body": part, "more_body": True})
            if ready:
                self.at = ready[-1].seq
                state.metrics.events.inc(len(ready))
                if ready[-1].kind == END:
                    return
            elif watch.over:
                return
            elif state.drain.begun:
                await send({"type": "http.response.body", "body": COME_BACK, "more_body": True})
                return
            elif not await watch.changed(state.settings.limits.keep_alive_s):
                await send({"type": "http.response.body", "body": ALIVE, "more_body": True})
            if loop.time() - checked > RECHECK_S:
                checked = loop.time()
                if not await self._may_go_on():
                    return

    async def _until_gone(self, receive: Receive, watch: Watch) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.gone = True
        watch.wake()

    async def _may_go_on(self) -> bool:
        return await self.state.database.read(keys.is_usable, self.caller.key.id)

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        state, key = self.state, self.caller.key.id
        limits = state.settings.limits
        if sum(state.streams.values()) >= limits.streams:
            raise busy("event streams")
        if state.streams[key] >= limits.streams_per_key:
            raise HttpError(
                429,
                "too-many-streams",
                f"the key watches {limits.streams_per_key} validations already.",
                "Close some.",
                retry_after_s=5,
            )
        state.streams[key] += 1
        state.metrics.streams.inc()
        try:
            yield
        finally:
            state.streams[key] -= 1
            if not state.streams[key]:
                del state.streams[key]
            state.metrics.streams.dec()


def _parts(ready: list[Told]) -> Iterator[bytes]:
    """Put messages together, so that a history of thousands is not sent one by one."""
    held = bytearray()
    for event in ready:
        held += event.message
        if len(held) >= CHUNK_BYTES:
            yield bytes(held)
            held.clear()
    if held:
        yield bytes(held)
