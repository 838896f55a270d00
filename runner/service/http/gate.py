"""What every request goes through: ids, bounds in size and time, headers of every answer, the log and the counters.

An ASGI middleware of its own, around everything, so that it sees also what the framework answers by itself, and takes
nothing away from streams.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any, Final

from starlette.datastructures import MutableHeaders

from runner.service.http.bounds import ANSWER_S, BODY_S
from runner.service.http.errors import HttpError, as_http, busy, error_response, internal
from runner.service.http.exchange import KEY, Exchange

if TYPE_CHECKING:
    from runner.service.http.state import ServiceState

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_GIVEN_ID: Final = re.compile(r"[A-Za-z0-9_-]{8,64}")

_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Of every answer that does not say otherwise."""

OPERATIONS: Final = ("/healthz", "/readyz", "/metrics")
"""Asked by machines every few seconds: answered also when there is too much to do, and not logged when all is well."""


class Gate:
    """The middleware; see the module.

    Args:
        app: What answers.
        state: The service's parts.
    """

    def __init__(self, app: App, state: ServiceState) -> None:
        self._app = app
        self._state = state
        self._under_way = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            raise RuntimeError(f"nothing is served over {scope['type']}")
        exchange = self._exchange(scope)
        scope[KEY] = exchange
        passage = _Passage(self._state, exchange, scope, receive, send)
        self._under_way += 1
        self._state.metrics.in_flight.inc()
        waited_for = exchange.path not in OPERATIONS and not self._state.drain.begun
        try:
            with self._state.drain.waited_for() if waited_for else contextlib.nullcontext():
                await self._pass(exchange, passage, scope)
        finally:
            exchange.free()
            self._state.metrics.in_flight.dec()
            self._state.metrics.answered(exchange, _route(scope))
            self._state.log.answered(exchange, quiet=exchange.path in OPERATIONS and exchange.status == 200)

    async def _pass(self, exchange: Exchange, passage: _Passage, scope: Scope) -> None:
        try:
            self._check(exchange, scope)
            async with asyncio.timeout(ANSWER_S) as exchange.deadline:
                await self._app(scope, passage.receive, passage.send)
        except ConnectionAbortedError:
            exchange.aborted = True
        except TimeoutError as error:
            if exchange.deadline is None or not exchange.deadline.expired():
                await self._fail(exchange, passage, error)
            else:
                await passage.tell(HttpError(503, "timeout", f"there was no answer within {ANSWER_S:g} s."))
        except Exception as error:  # noqa: BLE001 - whatever it is, the client is told and the log has it
            await self._fail(exchange, passage, error)

    async def _fail(self, exchange: Exchange, passage: _Passage, error: Exception) -> None:
        known = as_http(error)
        if known is None:
            self._state.log.failed(exchange, error)
        await passage.tell(known or internal())

    def _exchange(self, scope: Scope) -> Exchange:
        given = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"").decode("latin-1")
        client = scope.get("client")
        freed = False

        def free() -> None:
            nonlocal freed
            if not freed:
                freed = True
                self._under_way -= 1

        return Exchange(
            id=given if _GIVEN_ID.fullmatch(given) else f"req_{secrets.token_hex(10)}",
            method=scope["method"],
            path=scope["path"],
            address=str(client[0]) if client else "",
            max_body=self._state.settings.limits.body_bytes,
            body_s=BODY_S,
            free=free,
        )

    def _check(self, exchange: Exchange, scope: Scope) -> None:
        limits = self._state.settings.limits
        size = len(scope.get("raw_path") or b"") + len(scope["query_string"])
        size += sum(len(name) + len(value) for name, value in scope["headers"])
        if size > limits.header_bytes:
            raise HttpError(431, "headers-too-large", f"the request's head has more than {limits.header_bytes} bytes.")
        if exchange.path in OPERATIONS:
            return
        if self._state.drain.begun:
            raise HttpError(503, "draining", "the service is about to end here.", "Ask again.", retry_after_s=1)
        if self._under_way > limits.requests_at_once:
            raise busy("requests")


class _Passage:
    """What one request receives and sends, bounded."""

    def __init__(self, state: ServiceState, exchange: Exchange, scope: Scope, receive: Receive, send: Send) -> None:
        self._state = state
        self._exchange = exchange
        self._scope = scope
        self._receive = receive
        self._send = send
        self._silence_s = state.settings.limits.silence_s
        self._left_s: float | None = None
        self._body = 0
        self._complete = False
        self._ended = False

    async def receive(self) -> Message:
        """Give the next piece of the body, or that the client has gone.

        Raises:
            HttpError: the body is larger, or comes more slowly, than it may.
        """
        if self._complete:
            # what is waited for now is the client's going, which may take any time
            return await self._receive()
        exchange = self._exchange
        if not self._body and self._announced() > exchange.max_body:
            raise self._too_large()
        loop = asyncio.get_running_loop()
        began = loop.time()
        patience = self._silence_s
        if exchange.body_s is not None:
            self._left_s = exchange.body_s if self._left_s is None else self._left_s
            patience = min(patience, self._left_s)
        try:
            async with asyncio.timeout(patience):
                message = await self._receive()
        except TimeoutError:
            raise HttpError(408, "slow-body", f"the body of the request did not go on for {patience:g} s.") from None
        if self._left_s is not None:
            self._left_s = max(0.0, self._left_s - (loop.time() - began))
        if message["type"] == "http.request":
            self._body += len(message.get("body", b""))
            self._complete = not message.get("more_body", False)
            if self._body > exchange.max_body:
                raise self._too_large()
        return message

    async def send(self, message: Message) -> None:
        """Send a piece of the answer.

        Raises:
            ConnectionAbortedError: the client does not read; its connection is cut.
        """
        if message["type"] == "http.response.start":
            self._exchange.status = message["status"]
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
            headers["X-Request-Id"] = self._exchange.id
            if self._state.drain.begun:
                headers["Connection"] = "close"
        elif not message.get("more_body", False):
            self._ended = True
        try:
            async with asyncio.timeout(self._silence_s):
                await self._send(message)
        except TimeoutError:
            self.cut()
            raise ConnectionAbortedError from None

    async def tell(self, error: HttpError) -> None:
        """Answer with an error; where the answer has begun it can only be broken off."""
        self._exchange.code = error.code
        if self._ended:
            return
        if self._exchange.status:
            self.cut()
            return
        response = error_response(error, self._exchange.path, self._exchange.id)
        try:
            await response(self._scope, self._receive, self.send)
        except ConnectionAbortedError:
            self._exchange.aborted = True

    def cut(self) -> None:
        """Close the connection at once: closed politely, it would wait for a client that reads nothing."""
        self._exchange.aborted = True
        connection = self._scope["state"].get("connection")
        if connection is not None:
            connection.cut()

    def _announced(self) -> int:
        for name, value in self._scope["headers"]:
            if name == b"content-length":
                # the parser has seen to it that it is a number
                return int(value)
        return 0

    def _too_large(self) -> HttpError:
        return HttpError(413, "too-large", f"the body of the request has more than {self._exchange.max_body} bytes.")


def _route(scope: Scope) -> str:
    """Return the path with its parameters' names, of which there are few; empty for one that is not there."""
    route = scope.get("route")
    return str(getattr(route, "path", "")) if route is not None else ""
