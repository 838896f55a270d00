"""HTTP for the gateway: uvicorn's protocol on loopback and on single sockets, in the event loop that is there already.

Of uvicorn only the protocol is used: its server would take over signals and logging. Every connection is bounded in
time until it asks something, and a client that goes takes its call along.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import socket
import ssl
from collections.abc import Awaitable, Callable
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final

from runner.gateway.app import App
from runner.gateway.faults import RefusedError, error_body
from runner.limits import (
    GATEWAY_CONNECTIONS,
    GATEWAY_HEAD_BYTES,
    GATEWAY_IDLE_S,
    GATEWAY_LINGER_S,
    GATEWAY_REQUEST_S,
    GATEWAY_TLS_S,
)

if TYPE_CHECKING:
    from uvicorn import Config
    from uvicorn.protocols.http.h11_impl import RequestResponseCycle
    from uvicorn.server import ServerState

Handler = Callable[[socket.socket], Awaitable[None]]
"""Has one connection, a socket that does not block, until it returns."""

OnConnect = Callable[[OSError | None], None]

BACKLOG: Final = 1024
"""Connections that may wait to be accepted: a large run opens all its rollouts' at once."""

DESCRIPTORS: Final = 4
"""For each connection: one for itself, one for the model's server, and as many for everything else."""

_BAD_REQUEST: Final = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
    b"x-should-retry: false\r\nconnection: close\r\n\r\n%s"
)

_SILENT: Final = logging.Logger("benchmax-gateway", logging.CRITICAL + 1)
"""In no hierarchy: what a client does wrong is told to the client, and is no news for the caller's log."""
_SILENT.disabled = True


class Server:
    """Serves an application.

    Args:
        app: The application.
    """

    def __init__(self, app: App) -> None:
        self._app = app
        self._state: ServerState | None = None
        self._listener: asyncio.Server | None = None
        self._handling: set[asyncio.Task[Any]] = set()
        self._most = _room()
        self._closed = False

    async def listen(self) -> str:
        """Listen on a free port of the loopback interface; return the origin. Twice gives the same."""
        self._check_open()
        if self._listener is None:
            loop = asyncio.get_running_loop()
            self._listener = await loop.create_server(self._factory(None), "127.0.0.1", 0, backlog=BACKLOG)
        host, port = self._listener.sockets[0].getsockname()[:2]
        return f"http://{host}:{port}"

    def handler(
        self, origin: str | None, tls: ssl.SSLContext | None = None, *, on_connect: OnConnect | None = None
    ) -> Handler:
        """Return what serves single accepted sockets.

        Args:
            origin: Whose connections were intercepted; `None` for the gateway's own address.
            tls: Ends TLS with it; `None` for plain HTTP.
            on_connect: Told of each connection that HTTP can be spoken on, or why it cannot.
        """
        self._check_open()
        return partial(self._handle, self._factory(origin), tls, on_connect)

    @property
    def requests_in_flight(self) -> int:
        """Requests that are being worked on; may be asked from any thread."""
        return 0 if self._state is None else len(self._state.tasks)

    async def aclose(self) -> None:
        """Cut all connections, and wait for what was working for them. Safe to call twice."""
        self._closed = True
        if self._listener is not None:
            self._listener.close()
        for task in self._handling:
            task.cancel()
        state = self._state
        while self._handling or (state is not None and (state.connections or state.tasks)):
            waiting: set[asyncio.Future[Any]] = {*self._handling}
            if state is not None:
                waiting |= state.tasks
                for connection in [*state.connections]:
                    connection.cut()  # type: ignore[union-attr]  # they are all of the class below
                    waiting.add(connection.lost)  # type: ignore[union-attr]
            await asyncio.wait(waiting)

    async def _handle(
        self,
        factory: Callable[[], Any],
        tls: ssl.SSLContext | None,
        on_connect: OnConnect | None,
        accepted: socket.socket,
    ) -> None:
        if self._closed:
            return
        task = asyncio.current_task()
        assert task is not None
        self._handling.add(task)
        try:
            # asyncio turns Nagle's algorithm off (40 ms per answer) only where the protocol is named
            with contextlib.suppress(OSError):
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            patience = None if tls is None else GATEWAY_TLS_S
            try:
                connection = factory()
                # some loops return a protocol of their own below TLS
                await asyncio.get_running_loop().connect_accepted_socket(
                    lambda: connection, accepted, ssl=tls, ssl_handshake_timeout=patience
                )
            except OSError as failure:
                # the client does not speak TLS, does not trust the certificate, or has gone: it knows already
                if on_connect is not None:
                    on_connect(failure)
                return
            if on_connect is not None:
                on_connect(None)
            await self._until_lost(connection)
        finally:
            self._handling.discard(task)

    async def _until_lost(self, connection: Any) -> None:
        try:
            await asyncio.shield(connection.lost)
        finally:
            connection.cut()
            await connection.lost

    def _factory(self, origin: str | None) -> Callable[[], Any]:
        from uvicorn import Config
        from uvicorn.server import ServerState

        if self._state is None:
            self._state = ServerState()
        config = Config(
            partial(self._app.serve, origin=origin),
            interface="asgi3",
            http="h11",
            ws="none",
            lifespan="off",
            proxy_headers=False,
            # its own would change the loggers of the whole process
            log_config=None,
            server_header=False,
            date_header=False,
            h11_max_incomplete_event_size=GATEWAY_HEAD_BYTES,
            timeout_keep_alive=GATEWAY_IDLE_S,
        )
        config.load()
        return partial(_protocol_class(), config, self._state, self._most)

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("the gateway is closed")


@cache
def _protocol_class() -> Any:
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class GatewayProtocol(H11Protocol):
        """One client's connection."""

        def __init__(self, config: Config, state: ServerState, most: int) -> None:
            loop = asyncio.get_running_loop()
            super().__init__(config, state, {"connection": self}, loop)
            self.logger = _SILENT
            self.access_log = False
            self.lost: asyncio.Future[None] = loop.create_future()
            self.work: asyncio.Task[Any] | None = None
            self._most = most
            self._patience: asyncio.TimerHandle | None = None
            self._refused = False

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            if len(self.connections) > self._most:
                transport.abort()
                return
            self._patience = self.loop.call_later(GATEWAY_REQUEST_S, self.cut)

        def data_received(self, data: bytes) -> None:
            if self._refused:
                return
            super().data_received(data)
            cycle: RequestResponseCycle | None = self.cycle
            if cycle is not None and not cycle.response_complete:
                self._be_patient()
            elif self._patience is None:
                self._patience = self.loop.call_later(GATEWAY_REQUEST_S, self.cut)

        def on_response_complete(self) -> None:
            self._be_patient()
            super().on_response_complete()

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            self._be_patient()
            self._unset_keepalive_if_required()
            if self.work is not None:
                self.work.cancel()
            if not self.lost.done():
                self.lost.set_result(None)

        def cut(self) -> None:
            self.transport.abort()

        def _be_patient(self) -> None:
            if self._patience is not None:
                self._patience.cancel()
                self._patience = None

        def send_400_response(self, msg: str) -> None:
            cycle: RequestResponseCycle | None = self.cycle
            if cycle is not None and not cycle.response_complete:
                if cycle.response_started:
                    # in the middle of an answer there is no place for another
                    self.cut()
                    return
                cycle.disconnected = True
                cycle.message_event.set()
            body = error_body(RefusedError("the request is no HTTP that can be read."))
            self.transport.write(_BAD_REQUEST % (len(body), body))
            self._refused = True
            if self.transport.can_write_eof():
                self.transport.write_eof()
                self._be_patient()
                self._patience = self.loop.call_later(GATEWAY_LINGER_S, self.cut)
            else:
                self.transport.close()

    return GatewayProtocol


def _room() -> int:
    """How many connections there is room for, when the limit of descriptors is as high as it may be.

    Many systems start programs with a low limit for the sake of very old ones, and let each raise it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = GATEWAY_CONNECTIONS * DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else max(soft, min(wanted, hard))
        # a system may have a limit of its own below the hard one
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return GATEWAY_CONNECTIONS if soft == resource.RLIM_INFINITY else min(GATEWAY_CONNECTIONS, soft // DESCRIPTORS)
