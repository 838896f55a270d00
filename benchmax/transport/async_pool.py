"""Connections to model servers, shared by everything that runs in one event loop.

Every client gets an `AsyncPooledTransport` of its own. Below it, connections are kept per origin and serve one request
at a time, so that a failed or cancelled request costs its own connection and no other. A request never waits for a
connection; idle ones are kept for a moment. Cookies and headers belong to the clients and are never shared. The
connections close when the loop shuts down its asynchronous generators, as `asyncio.run` does, or in
`aclose_transports`. A loop that is closed in neither way leaves its sockets to the garbage collector.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from benchmax.transport.http_family import HttpFamily, environment_proxy

if TYPE_CHECKING:
    import ssl

__all__ = ["KEEPALIVE_S", "MAX_IDLE", "AsyncPooledTransport", "Connections", "aclose_transports"]

KEEPALIVE_S: Final = 3.0
"""How long an idle connection is reused: less than the five seconds after which common servers close theirs."""

MAX_IDLE: Final = 512
"""Idle connections kept per origin, so that one burst of rollouts does not hold its sockets for ever."""


class _AsyncConnection:
    """One connection, which also knows its socket before the TLS handshake is done."""

    def __init__(self, family: HttpFamily, origin: Any, tls: ssl.SSLContext | None) -> None:
        self._backend = family.core.AnyIOBackend()
        self._socket: Any = None
        self._http = family.core.AsyncHTTPConnection(
            origin, ssl_context=tls, keepalive_expiry=KEEPALIVE_S, network_backend=self
        )

    async def connect_tcp(self, **options: Any) -> Any:
        self._socket = await self._backend.connect_tcp(**options)
        return self._socket

    async def send(self, request: Any) -> Any:
        return await self._http.handle_async_request(request)

    def is_idle(self) -> bool:
        return bool(self._http.is_idle())

    def has_expired(self) -> bool:
        return bool(self._http.has_expired())

    async def aclose(self) -> None:
        try:
            await self._http.aclose()
        finally:
            # cancelled during the handshake, the connection does not own the socket yet and would leave it open
            if self._socket is not None:
                await self._socket.aclose()


class _AsyncOrigin:
    """The connections of one event loop to one origin."""

    def __init__(self, family: HttpFamily, url: Any) -> None:
        self._family = family
        self._origin = family.origin(url)
        self._tls = family.tls_context() if url.scheme == "https" else None
        self._idle: deque[_AsyncConnection] = deque()
        self._busy: set[_AsyncConnection] = set()
        self._closed = False

    async def handle(self, request: Any, open_bodies: set[Any]) -> Any:
        connection = await self._take()
        response = None
        try:
            with self._family.translated_errors():
                response = await connection.send(self._family.core_request(request))
        finally:
            if response is None:
                await self._discard(connection)
        body = _body_class(self._family)(self, connection, response.stream, open_bodies)
        open_bodies.add(body)
        return self._family.response(response, body)

    async def _take(self) -> _AsyncConnection:
        connection = None
        while self._idle and connection is None:
            # the last one used first: the others grow old, and are dropped at the far end
            connection = self._idle.pop()
            if connection.has_expired():
                await connection.aclose()
                connection = None
        if connection is None:
            connection = _AsyncConnection(self._family, self._origin, self._tls)
        self._busy.add(connection)
        return connection

    async def release(self, connection: _AsyncConnection) -> None:
        """Take back a connection whose response was closed."""
        if self._closed or not connection.is_idle():
            await self._discard(connection)
            return
        self._busy.discard(connection)
        self._idle.append(connection)
        if len(self._idle) > MAX_IDLE or self._idle[0].has_expired():
            await self._idle.popleft().aclose()

    async def _discard(self, connection: _AsyncConnection) -> None:
        self._busy.discard(connection)
        await connection.aclose()

    async def aclose(self) -> None:
        self._closed = True
        while self._idle or self._busy:
            await (self._idle or self._busy).pop().aclose()


class _AsyncProxied:
    """One event loop's way to one origin through a proxy: the HTTP library's own pool, without a limit."""

    def __init__(self, family: HttpFamily, proxy: str) -> None:
        limits = family.http.Limits(
            max_connections=None, max_keepalive_connections=MAX_IDLE, keepalive_expiry=KEEPALIVE_S
        )
        self._transport = family.http.AsyncHTTPTransport(verify=family.tls_context(), proxy=proxy, limits=limits)

    async def handle(self, request: Any, open_bodies: set[Any]) -> Any:
        return await self._transport.handle_async_request(request)

    async def aclose(self) -> None:
        await self._transport.aclose()


class Connections:
    """Connections to any number of origins, for one event loop; they close with it at the latest.

    Args:
        loop: The event loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._origins: dict[tuple[str, Any, Any, Any], _AsyncOrigin | _AsyncProxied] = {}
        self._closer: AsyncGenerator[None, None] | None = None

    async def origin(self, family: HttpFamily, url: Any) -> _AsyncOrigin | _AsyncProxied:
        """Return the way to a URL's origin."""
        key = (family.name, url.raw_scheme, url.raw_host, url.port)
        if key not in self._origins:
            if self._closer is None:
                # a loop closes its pending asynchronous generators while it still runs: the only hook it offers
                self._closer = self._until_closed()
                await anext(self._closer)
            proxy = environment_proxy(url)
            self._origins[key] = _AsyncOrigin(family, url) if proxy is None else _AsyncProxied(family, proxy)
        return self._origins[key]

    async def _until_closed(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            if _loops.get(self._loop) is self:
                del _loops[self._loop]
            while self._origins:
                await self._origins.popitem()[1].aclose()

    async def aclose(self) -> None:
        """Close them all; later requests open new ones."""
        if self._closer is not None:
            await self._closer.aclose()
            self._closer = None


_loops: dict[asyncio.AbstractEventLoop, Connections] = {}
_loops_lock = threading.Lock()


def _running_loop_connections() -> Connections:
    loop = asyncio.get_running_loop()
    found = _loops.get(loop)
    if found is None:
        with _loops_lock:
            # loops that were closed without closing their generators first
            for closed in [other for other in _loops if other.is_closed()]:
                del _loops[closed]
            found = _loops[loop] = Connections(loop)
    return found


async def aclose_transports() -> None:
    """Close every connection of the running event loop; later requests open new ones."""
    found = _loops.get(asyncio.get_running_loop())
    if found is not None:
        await found.aclose()


class AsyncPooledTransport:
    """The transport of one client. Closing it closes the responses this client left unread, not the connections.

    Args:
        family: The HTTP library of its requests.
        connections: Where its connections are kept; `None` shares those of the running event loop.
    """

    def __init__(self, family: HttpFamily, connections: Connections | None = None) -> None:
        self._family = family
        self._connections = connections
        self._open_bodies: set[Any] = set()

    async def handle_async_request(self, request: Any) -> Any:
        """Send a request of the HTTP library to its URL's origin and return the response."""
        if request.url.scheme not in ("http", "https"):
            raise self._family.http.UnsupportedProtocol(f"Model URL {request.url} must begin with http:// or https://.")
        connections = self._connections or _running_loop_connections()
        origin = await connections.origin(self._family, request.url)
        return await origin.handle(request, self._open_bodies)

    async def __aenter__(self) -> AsyncPooledTransport:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the responses that were not read to their end."""
        while self._open_bodies:
            await self._open_bodies.pop().aclose()


@cache
def _body_class(family: HttpFamily) -> Any:
    class AsyncBody(family.http.AsyncByteStream):  # type: ignore[misc,name-defined]
        """The bytes of a response; closing it gives the connection back."""

        def __init__(self, origin: _AsyncOrigin, connection: _AsyncConnection, stream: Any, owner: set[Any]) -> None:
            self._origin = origin
            self._connection = connection
            self._stream = stream
            self._owner = owner
            self._closed = False

        async def __aiter__(self) -> AsyncIterator[bytes]:
            with family.translated_errors():
                async for part in self._stream:
                    yield part

        async def aclose(self) -> None:
            if not self._closed:
                self._closed = True
                self._owner.discard(self)
                try:
                    await self._stream.aclose()
                finally:
                    await self._origin.release(self._connection)

    return AsyncBody
