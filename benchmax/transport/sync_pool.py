"""Connections to model servers, shared by all synchronous clients of the process, whatever their threads.

Every client gets a `PooledTransport` of its own. Below it, connections are kept per origin and serve one request at a
time; a request never waits for a connection. They close when the process ends. A forked child starts without any.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections import deque
from collections.abc import Iterator
from functools import cache
from typing import Any

from benchmax.transport.async_pool import KEEPALIVE_S, MAX_IDLE
from benchmax.transport.http_family import HttpFamily, environment_proxy

__all__ = ["PooledTransport", "close_transports"]


class _Origin:
    """The connections of the process to one origin."""

    def __init__(self, family: HttpFamily, url: Any) -> None:
        self._family = family
        self._origin = family.origin(url)
        self._tls = family.tls_context() if url.scheme == "https" else None
        self._lock = threading.Lock()
        self._idle: deque[Any] = deque()
        self._closed = False

    def handle(self, request: Any, open_bodies: set[Any]) -> Any:
        connection = self._take()
        response = None
        try:
            with self._family.translated_errors():
                response = connection.handle_request(self._family.core_request(request))
        finally:
            if response is None:
                connection.close()
        body = _body_class(self._family)(self, connection, response.stream, open_bodies)
        open_bodies.add(body)
        return self._family.response(response, body)

    def _take(self) -> Any:
        while True:
            with self._lock:
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                return self._family.core.HTTPConnection(
                    self._origin, ssl_context=self._tls, keepalive_expiry=KEEPALIVE_S
                )
            if not connection.has_expired():
                return connection
            connection.close()

    def release(self, connection: Any) -> None:
        """Take back a connection whose response was closed."""
        surplus = connection
        if connection.is_idle():
            with self._lock:
                if not self._closed:
                    self._idle.append(connection)
                    old = len(self._idle) > MAX_IDLE or self._idle[0].has_expired()
                    surplus = self._idle.popleft() if old else None
        if surplus is not None:
            surplus.close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, deque()
        for connection in idle:
            connection.close()


class _Proxied:
    """The process's way to one origin through a proxy: the HTTP library's own pool, without a limit."""

    def __init__(self, family: HttpFamily, proxy: str) -> None:
        limits = family.http.Limits(
            max_connections=None, max_keepalive_connections=MAX_IDLE, keepalive_expiry=KEEPALIVE_S
        )
        self._transport = family.http.HTTPTransport(verify=family.tls_context(), proxy=proxy, limits=limits)

    def handle(self, request: Any, open_bodies: set[Any]) -> Any:
        return self._transport.handle_request(request)

    def close(self) -> None:
        self._transport.close()


class _ProcessConnections:
    """The origins of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._origins: dict[tuple[str, Any, Any, Any], _Origin | _Proxied] = {}

    def origin(self, family: HttpFamily, url: Any) -> _Origin | _Proxied:
        key = (family.name, url.raw_scheme, url.raw_host, url.port)
        with self._lock:
            if key not in self._origins:
                proxy = environment_proxy(url)
                self._origins[key] = _Origin(family, url) if proxy is None else _Proxied(family, proxy)
            return self._origins[key]

    def close(self) -> None:
        with self._lock:
            origins, self._origins = self._origins, {}
        for origin in origins.values():
            origin.close()


_generations = [_ProcessConnections()]
"""The last one is this process's; earlier ones belong to the processes it was forked from and must not be touched."""

os.register_at_fork(after_in_child=lambda: _generations.append(_ProcessConnections()))


@atexit.register
def close_transports() -> None:
    """Close every idle connection of this process's synchronous clients; later requests open new ones."""
    _generations[-1].close()


class PooledTransport:
    """The transport of one client. Closing it closes the responses this client left unread, not the connections."""

    def __init__(self, family: HttpFamily) -> None:
        self._family = family
        self._open_bodies: set[Any] = set()

    def handle_request(self, request: Any) -> Any:
        """Send a request of the HTTP library to its URL's origin and return the response."""
        if request.url.scheme not in ("http", "https"):
            raise self._family.http.UnsupportedProtocol(f"Model URL {request.url} must begin with http:// or https://.")
        return _generations[-1].origin(self._family, request.url).handle(request, self._open_bodies)

    def __enter__(self) -> PooledTransport:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the responses that were not read to their end."""
        while self._open_bodies:
            self._open_bodies.pop().close()


@cache
def _body_class(family: HttpFamily) -> Any:
    class Body(family.http.SyncByteStream):  # type: ignore[misc,name-defined]
        """The bytes of a response; closing it gives the connection back."""

        def __init__(self, origin: _Origin, connection: Any, stream: Any, owner: set[Any]) -> None:
            self._origin = origin
            self._connection = connection
            self._stream = stream
            self._owner = owner
            self._closed = False

        def __iter__(self) -> Iterator[bytes]:
            with family.translated_errors():
                yield from self._stream

        def close(self) -> None:
            if not self._closed:
                self._closed = True
                self._owner.discard(self)
                try:
                    self._stream.close()
                finally:
                    self._origin.release(self._connection)

    return Body
