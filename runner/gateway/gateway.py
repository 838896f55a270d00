"""The gateway of one environment: sessions for its rollouts, and the servers that they are reached at."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from benchmax.transport.async_pool import Connections
from runner.gateway.app import App, Opening
from runner.gateway.budget import Budget
from runner.gateway.client import Receive, Send
from runner.gateway.diagnostics import SessionContract
from runner.gateway.exchange import CallTrace, Upstream
from runner.gateway.faults import RefusedError
from runner.gateway.hosted import HostedConnection
from runner.gateway.http_upstream import Credentials, HttpUpstream
from runner.gateway.rejection import Rejections
from runner.gateway.server import Handler, OnConnect, Server
from runner.gateway.session import Session, Sessions, Shelf, valid_id
from runner.limits import SESSION_TTL_S, Limits

Admit = Callable[[Opening], Awaitable[Upstream | None]]
"""Says what answers a session that somebody opens over HTTP, by the bearer that is shown; `None` refuses it."""


class Gateway:
    """Stands between clients and models. Belongs to the event loop in which it is first used.

    Args:
        limits: What sessions may use, and how long upstreams may take.
        clean: Takes secrets out of a text. All that a client gets goes through it.
        finished: Told of each call when it is over, on the event loop; must not raise. The call's `document` is there.
        admit: Lets clients open sessions over HTTP; `None` lets nobody.
        session_s: How long such a session lives at most, whatever its client asks for, in seconds.
    """

    def __init__(
        self,
        limits: Limits,
        *,
        clean: Callable[[str], str],
        finished: Callable[[CallTrace], None] | None = None,
        admit: Admit | None = None,
        session_s: float = SESSION_TTL_S,
    ) -> None:
        self._limits = limits
        self._sessions = Sessions()
        self._shelf = Shelf(limits.in_flight_bytes)
        self._admit = admit
        self._session_s = session_s
        self._connections: Connections | None = None
        self._expiries: dict[Session, asyncio.TimerHandle] = {}
        self._expiring: set[asyncio.Task[None]] = set()
        opening = None if admit is None else self._open_admitted
        self._app = App(self._sessions, limits, clean=clean, finished=finished, open_session=opening)
        self._server = Server(self._app)

    def open(
        self,
        session_id: str,
        upstream: Upstream,
        *,
        rollout_id: str,
        binding: str | None = None,
        model: str | None = None,
        budget: Budget | None = None,
        ttl_s: float | None = None,
        at: Iterable[str] = (),
        base_url: str | None = None,
    ) -> Session:
        """Open a session.

        Args:
            session_id: 1 to 100 of A-Z, a-z, 0-9, dot, underscore and hyphen; see `free_id`.
            upstream: What answers its calls.
            rollout_id: Told to the upstream with each call.
            binding: The same.
            model: The one that its requests may name; `None` for any.
            budget: What it may take; by default what `limits` let one rollout take.
            ttl_s: When it ends by itself, in seconds; `None` for never.
            at: Where its key is good beside its own base URL: paths of other sessions, from which its calls go to
                those sessions' `base_url`, and URLs at and below which connections are intercepted.
            base_url: The real base URL of what it stands for, for keys of other sessions that are good here.

        Raises:
            ValueError: the id cannot be used or is taken, or a URL of `at` is none.
        """
        session = Session(
            session_id,
            upstream,
            rollout_id=rollout_id,
            binding=binding,
            model=model,
            budget=Budget.of(self._limits) if budget is None else budget,
            base_url=base_url,
            at=at,
            trace_bytes=self._limits.rollout_trace_bytes,
            shelf=self._shelf,
            contract=SessionContract() if binding is None else None,
            over=self._over,
        )
        self._sessions.add(session)
        if ttl_s is not None:
            self._expiries[session] = asyncio.get_running_loop().call_later(ttl_s, self._expire, session)
        return session

    @property
    def sessions(self) -> list[Session]:
        """The sessions that are open now."""
        return [*self._sessions]

    def free_id(self, rollout_id: str) -> str:
        """Return an id for a rollout's session: its own where that can stand in a URL, made unlike all others."""
        return self._sessions.free_id(rollout_id)

    def upstream(
        self, base_url: str, credentials: Credentials, *, rejections: Rejections | None = None
    ) -> HttpUpstream:
        """Return an upstream over connections that are closed with the gateway; arguments as `HttpUpstream` has them.

        Raises:
            ValueError: `base_url` is no URL that everybody reads the same.
        """
        if self._connections is None:
            self._connections = Connections(asyncio.get_running_loop())
        return HttpUpstream(
            base_url, credentials, limits=self._limits, connections=self._connections, rejections=rejections
        )

    async def listen(self) -> str:
        """Serve on a free port of the loopback interface; return the origin, such as `http://127.0.0.1:43211`."""
        return await self._server.listen()

    def handler(
        self, origin: str | None, tls: ssl.SSLContext | None = None, *, on_connect: OnConnect | None = None
    ) -> Handler:
        """Return what serves single accepted sockets.

        Args:
            origin: Whose connections were intercepted, as scheme, host and port; `None` for the gateway's own address.
            tls: Ends TLS with it; `None` for plain HTTP.
            on_connect: Told of each connection that HTTP can be spoken on (`None`), or why it cannot.
        """
        return self._server.handler(origin, tls, on_connect=on_connect)

    async def serve(
        self, scope: Mapping[str, Any], receive: Receive, send: Send, *, cut: Callable[[], None] | None = None
    ) -> None:
        """Answer one request that came to another server, as an ASGI application; paths are those of this gateway.

        Args:
            scope: As ASGI has it.
            receive: The same.
            send: The same.
            cut: Closes the request's connection at once, where the server offers a way to.
        """
        connection = HostedConnection(receive, send, cut)
        with connection.ending():
            await self._app.serve(connection.scope(scope), receive, connection.send, origin=None)

    @property
    def calls_in_flight(self) -> int:
        """Requests that it is working on, from when one has arrived until its answer has been sent."""
        return self._server.requests_in_flight

    async def aclose(self) -> None:
        """End all sessions and connections. Safe to call twice."""
        for session in self._sessions:
            session.revoke()
        await self._server.aclose()
        if self._expiring:
            await asyncio.wait(self._expiring)
        if self._connections is not None:
            await self._connections.aclose()

    def _over(self, session: Session) -> None:
        self._sessions.remove(session)
        expiry = self._expiries.pop(session, None)
        if expiry is not None:
            expiry.cancel()

    def _expire(self, session: Session) -> None:
        task = asyncio.ensure_future(session.close())
        self._expiring.add(task)
        task.add_done_callback(self._expiring.discard)

    async def _open_admitted(self, opening: Opening) -> Session:
        assert self._admit is not None
        if not valid_id(opening.session_id):
            raise RefusedError("the session's id must be 1 to 100 of A-Z a-z 0-9 . _ -", param="session_id")
        upstream = await self._admit(opening)
        if upstream is None:
            raise RefusedError("the bearer may not open a session.", code="invalid_session_key", status=401)
        budget = Budget.of(self._limits)
        if opening.max_context_tokens is not None:
            budget = Budget(context_tokens=opening.max_context_tokens, calls=budget.calls, tokens=budget.tokens)
        try:
            return self.open(
                opening.session_id,
                upstream,
                rollout_id=opening.session_id,
                model=opening.model,
                budget=budget,
                # what nobody collects must not stay for ever
                ttl_s=min(opening.ttl_seconds or self._session_s, self._session_s),
            )
        except ValueError as error:
            raise RefusedError(f"{error}.", status=409) from None
