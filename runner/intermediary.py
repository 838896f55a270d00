"""The gateway of one isolated environment: in the way of its workers, started with it and ended with it.

Comes in: where workers can connect, and the caller's calls. Goes out: what becomes of workers' connections, what they
are to trust, and their calls with session keys in the place of credentials.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

from runner.broker import Broker, CallScope
from runner.broker.address import Address
from runner.egress import Handler, Traffic, reset
from runner.gateway.authority import Authority, trusted
from runner.gateway.exchange import Exchange
from runner.gateway.gateway import Gateway
from runner.gateway.lending import Lender
from runner.gateway.lent_scope import LentScope
from runner.limits import Limits
from runner.record import RolloutRecord
from runner.redaction import Redactor
from runner.sandbox.endpoints import Endpoint

OnRecord = Callable[[RolloutRecord], None]


class Intermediary:
    """Stands between the workers of one environment and their models. Belongs to the event loop that starts it.

    Args:
        broker: Has the caller's credential sources.
        redactor: Knows every secret that is used.
        limits: What rollouts may use.
        traffic: Counts the workers' connections.
        place: Where workers in a network of their own find the gateway; `None` for workers that share the caller's.
        intercepted: Origins at which it answers there in the place of whoever is meant.
        exchange: Who answers in the place of the models' servers, if somebody does.
    """

    def __init__(
        self,
        broker: Broker,
        redactor: Redactor,
        limits: Limits,
        traffic: Traffic,
        *,
        place: Endpoint | None,
        intercepted: Sequence[Address],
        exchange: Exchange | None,
    ) -> None:
        self._broker = broker
        self._redactor = redactor
        self._limits = limits
        self._traffic = traffic
        self._place = place
        self._intercepted = intercepted
        self._exchange = exchange
        self._gateway = Gateway(limits, clean=redactor.clean, finished=None if exchange is None else exchange.finished)
        self._lender: Lender | None = None
        self._authority: Authority | None = None
        self.routes: Mapping[Endpoint, Handler] = {}
        """What becomes of workers' connections to it, and to those in whose place it answers."""
        self.trusted: bytes | None = None
        """What workers have to trust, as PEM, where it answers over TLS."""
        self.direct: str | None = None
        """The host at which workers find it that share the caller's network, and its proxies."""

    @property
    def calls_in_flight(self) -> int:
        """Requests that it is working on."""
        return self._gateway.calls_in_flight

    async def start(self) -> None:
        """Be there for workers that start from now on."""
        origin: str
        if self._place is None:
            origin = await self._gateway.listen()
            self.direct = "127.0.0.1"
        else:
            origin = Address("http", self._place.host, self._place.port, "").origin
            if any(intercepted.scheme == "https" for intercepted in self._intercepted):
                # a third of a second, most of it for what has to be loaded
                self._authority, self.trusted = await asyncio.to_thread(_found)
            self._route(self._place)
        self._lender = Lender(
            self._gateway,
            self._broker.clerk(self._limits),
            self._limits,
            origin=origin,
            intercepted=None if self._place is None else self._intercepted,
            exchange=self._exchange,
            unreachable=self._on_unreachable,
        )
        self._broker.outer = lambda scope: self.scope(scope, "constructor")

    def _on_unreachable(self, place: Address, reason: str) -> None:
        # what no program could connect to has no count; its client is told all the same
        with contextlib.suppress(ValueError):
            self._traffic.fail(Endpoint(place.host, place.port), reason)

    def _route(self, place: Endpoint) -> None:
        routes: dict[Endpoint, Handler] = {place: Answering(place, self._traffic, self._gateway)}
        for origin in self._intercepted:
            endpoint = Endpoint(origin.host, origin.port)
            authority = self._authority if origin.scheme == "https" else None
            routes[endpoint] = Answering(endpoint, self._traffic, self._gateway, origin.origin, authority)
        self.routes = routes

    def scope(self, inner: CallScope, what: str) -> LentScope:
        """Return what the worker of a call without rollouts asks in the place of `inner`.

        Args:
            inner: What the call may ask headers for.
            what: The call in words.
        """
        assert self._lender is not None
        return LentScope(self._lender, inner, what)

    @contextlib.asynccontextmanager
    async def rollouts(
        self, inner: CallScope, on_record: OnRecord | None
    ) -> AsyncIterator[tuple[LentScope, OnRecord | None]]:
        """Have sessions for the rollouts of a call, which end with the block at the latest.

        Args:
            inner: What the call may ask headers for.
            on_record: Told of each rollout when they have ended, with what was seen of it here.

        Raises:
            ValueError: the base URL of a request cannot be asked.
        """
        lent = self.scope(inner, f"group {next(iter(inner.requests))}")
        records: list[RolloutRecord] = []
        try:
            yield lent, None if on_record is None else records.append
        finally:
            collected = await lent.collect()
            if on_record is not None:
                for record in records:
                    seen = collected[record.rollout_id]
                    on_record(record.with_session(seen, self._redactor, transcript_bytes=self._limits.transcript_bytes))

    async def aclose(self) -> None:
        """End everything. Safe to call twice."""
        if self._lender is not None:
            await self._lender.aclose()
        await self._gateway.aclose()


class Answering:
    """The handler of connections that end at the gateway, counted as those are that are carried on.

    Args:
        endpoint: Where they were to lead.
        traffic: Counts them.
        gateway: Answers.
        origin: In whose place; `None` at the gateway's own address.
        authority: Vouches for that; `None` where it is plain HTTP.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        traffic: Traffic,
        gateway: Gateway,
        origin: str | None = None,
        authority: Authority | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._traffic = traffic
        self._gateway = gateway
        self._origin = origin
        self._authority = authority
        # what has to be loaded for the first is loaded now
        self._serve = self._made(self._tls())

    async def __call__(self, accepted: socket.socket) -> None:
        """Serve until the connection has ended."""
        if not self._traffic.enter(self._endpoint):
            reset(accepted)
            return
        try:
            tls = self._tls()
            if self._serve[0] is not tls:
                # the certificate was renewed
                self._serve = self._made(tls)
            await self._serve[1](accepted)
        finally:
            self._traffic.leave()

    def _tls(self) -> ssl.SSLContext | None:
        return None if self._authority is None else self._authority.server(self._endpoint.host)

    def _made(self, tls: ssl.SSLContext | None) -> tuple[ssl.SSLContext | None, Handler]:
        return tls, self._gateway.handler(self._origin, tls, on_connect=self._on_connect)

    def _on_connect(self, failure: OSError | None) -> None:
        if failure is None:
            self._traffic.connected(self._endpoint)
        else:
            self._traffic.fail(self._endpoint, _why(failure))


def _found() -> tuple[Authority, bytes]:
    authority = Authority()
    return authority, trusted(authority)


def _why(failure: OSError) -> str:
    """Say why a client and the gateway could not agree on TLS."""
    if isinstance(failure, ssl.SSLError) and failure.reason:
        words = failure.reason.lower().replace("_", " ")
        if "unknown ca" in words or "certificate" in words:
            return f"its client does not trust the certificate of the run ({words}); it may pin another one"
        return f"its client and the gateway cannot agree on TLS ({words})"
    words = os.strerror(failure.errno) if failure.errno else str(failure) or "it closed the connection"
    return f"its client gave up the TLS handshake ({words})"
