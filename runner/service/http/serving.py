"""The server: uvicorn's protocol and loop of connections, with bounds of its own, and an end in good order.

At the first SIGTERM or SIGINT nothing new is begun: readiness says so to whoever still asks, event streams end with the
wish to come back, and what is under way goes on for as long as the settings say. A second signal cuts that short.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import signal
import socket
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any, Final

import h11
from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol

from runner.service.http.app import create_app
from runner.service.http.bounds import CONNECTIONS, DESCRIPTORS, IDLE_S, LINGER_S
from runner.service.http.errors import HttpError, error_response

if TYPE_CHECKING:
    from uvicorn.protocols.http.h11_impl import RequestResponseCycle

    from runner.service.http.state import ServiceState

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
SPARE_HEAD_BYTES: Final = 16 * 1024
"""What the parser takes beyond the head that is allowed, so that nearly all that is too long is answered as such."""

_SILENT: Final = logging.Logger("benchmax.service.connections", logging.CRITICAL + 1)
"""What a client does wrong at this level is told to the client."""
_SILENT.disabled = True


async def serve(state: ServiceState, *, listening: socket.socket, ready: Callable[[str], None] | None = None) -> None:
    """Serve until a signal, or `state.drain`, says that it is to end.

    Args:
        state: The service's parts, open; they stay so.
        listening: A bound socket.
        ready: Called with the service's URL when requests are answered.
    """
    limits = state.settings.limits
    proxies = list(state.settings.server.trusted_proxies)
    app = create_app(state)
    config = Config(
        app,
        http=_protocol_class(limits.head_s),
        ws="none",
        lifespan="on",
        interface="asgi3",
        proxy_headers=bool(proxies),
        forwarded_allow_ips=proxies or None,
        # its own would change the loggers of the whole process
        log_config=None,
        access_log=False,
        server_header=False,
        h11_max_incomplete_event_size=int(limits.header_bytes) + SPARE_HEAD_BYTES,
        timeout_keep_alive=IDLE_S,
        timeout_graceful_shutdown=None,
    )
    await _Server(config, state, ready).serve_until_drained(listening)


class _Server(Server):
    def __init__(self, config: Config, state: ServiceState, ready: Callable[[str], None] | None) -> None:
        super().__init__(config)
        self._state = state
        self._ready = ready

    async def serve_until_drained(self, listening: socket.socket) -> None:
        state, drain = self._state, self._state.drain
        hurry = asyncio.Event()
        with _signals(lambda: hurry.set() if drain.begun else drain.begin()):
            serving = asyncio.create_task(self.serve([listening]))
            ending = asyncio.create_task(self._end(hurry))
            try:
                await asyncio.wait((serving, ending), return_when=asyncio.FIRST_COMPLETED)
                await serving
            finally:
                ending.cancel()
                serving.cancel()
                await asyncio.wait((serving, ending))
        state.log.tell(logging.INFO, "ended")

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave signals to `serve_until_drained`."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and self._ready is not None:
            self._ready(self._state.settings.public_url)

    async def _end(self, hurry: asyncio.Event) -> None:
        state = self._state
        await state.drain.wait()
        state.log.tell(logging.INFO, "draining", connections=len(self.server_state.connections))
        state.feed.wake_all()
        waiting = {asyncio.create_task(hurry.wait()), asyncio.create_task(state.drain.settled())}
        try:
            await asyncio.wait(waiting, timeout=state.settings.limits.drain_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()
        self.should_exit = True
        # connections at rest are closed politely now, and what is left of an answer is sent
        await asyncio.sleep(LINGER_S)
        for connection in [*self.server_state.connections]:
            connection.cut()  # type: ignore[union-attr]  # they are all of the class below


@contextlib.contextmanager
def _signals(told: Callable[[], None]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    set_up = []
    for number in SIGNALS:
        try:
            loop.add_signal_handler(number, told)
        except (ValueError, RuntimeError):
            # not the main thread, where signals are somebody else's
            break
        set_up.append(number)
    try:
        yield
    finally:
        for number in set_up:
            loop.remove_signal_handler(number)


def _protocol_class(head_s: float) -> type[H11Protocol]:
    most = _room()

    class Connection(H11Protocol):
        """One client's connection: bounded in time while it asks, and cut when it reads nothing."""

        def __init__(self, config: Config, server_state: Any, app_state: dict[str, Any], _loop: Any = None) -> None:
            super().__init__(config, server_state, {**app_state, "connection": self}, _loop)
            self.logger = _SILENT
            self.access_log = False
            self._patience: asyncio.TimerHandle | None = None
            self._refused = False

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            if len(self.connections) > most:
                transport.abort()
                return
            self._cut_after(head_s)

        def data_received(self, data: bytes) -> None:
            if self._refused:
                return
            super().data_received(data)
            cycle: RequestResponseCycle | None = self.cycle
            if cycle is not None and not cycle.response_complete:
                self._be_patient()
            elif self._at_rest():
                # what was left of a body that was not wanted has come
                self._be_patient()
            elif self._patience is None:
                self._cut_after(head_s)

        def on_response_complete(self) -> None:
            self._be_patient()
            unread = self.cycle.more_body
            super().on_response_complete()
            if unread and not self.transport.is_closing():
                # what still comes of the body is thrown away, for as long as it takes to see the answer
                self._cut_after(LINGER_S)
            elif self.cycle.response_complete and not self._at_rest():
                # the beginning of the next request came along with this one
                self._cut_after(head_s)

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            self._be_patient()
            self._unset_keepalive_if_required()

        def send_400_response(self, msg: str) -> None:
            cycle: RequestResponseCycle | None = self.cycle
            if cycle is not None and not cycle.response_complete:
                if cycle.response_started:
                    # in the middle of an answer there is no place for another
                    self.cut()
                    return
                cycle.disconnected = True
                cycle.message_event.set()
            self._refused = True
            self.transport.write(_bad_request())
            if self.transport.can_write_eof():
                self.transport.write_eof()
                self._cut_after(LINGER_S)
            else:
                self.transport.close()

        def cut(self) -> None:
            """Close it at once."""
            if self.transport is not None:
                self.transport.abort()

        def _at_rest(self) -> bool:
            return self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]

        def _cut_after(self, seconds: float) -> None:
            self._be_patient()
            self._patience = self.loop.call_later(seconds, self.cut)

        def _be_patient(self) -> None:
            if self._patience is not None:
                self._patience.cancel()
                self._patience = None

    return Connection


def _bad_request() -> bytes:
    error = HttpError(400, "bad-request", "the request is no HTTP that can be read, or its head is too long.")
    body = bytes(error_response(error, "", "").body)
    head = "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nConnection: close\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def _room() -> int:
    """How many connections there is room for, when the limit of descriptors is as high as it may be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CONNECTIONS * DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else max(soft, min(wanted, hard))
        # a system may have a limit of its own below the hard one
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return CONNECTIONS if soft == resource.RLIM_INFINITY else min(CONNECTIONS, soft // DESCRIPTORS)
