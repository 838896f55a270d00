"""Opens sessions for calls, whose keys their workers get in the place of credentials: for a rollout's model, a binding.

Comes in: a rollout's request or a binding, with the caller's own scope of the call. Goes out: a session whose calls go
to the real server with the real headers, or to whoever answers in its place. A key is revoked at once when it is over.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Final

from benchmax.auth import ModelAuth
from benchmax.envs.shared_types import RolloutRequest
from runner.broker import CallScope, Clerk
from runner.broker.address import Address, read_address
from runner.errors import HeadersRefusedError
from runner.gateway.budget import Budget
from runner.gateway.exchange import Answer, Exchange, ModelCall, Upstream, UpstreamError
from runner.gateway.gateway import Gateway
from runner.gateway.http_upstream import HttpUpstream
from runner.gateway.real_headers import BoundHeaders, OwnHeaders
from runner.gateway.rejection import Rejections
from runner.gateway.session import Session
from runner.limits import Limits
from runner.protocol import HeaderRequest

Unreachable = Callable[[Address, str], None]

UNREACHABLE: Final = "upstream_unreachable"
"""Code of an upstream's error where no connection was made."""

SOURCES: Final = 256
"""Credential sources of which it is known what they said to refused headers."""


class Lender:
    """Opens sessions for the calls of one isolated environment.

    Args:
        gateway: Where.
        clerk: Gets the real headers.
        limits: What a rollout may use.
        origin: Where workers find the gateway.
        intercepted: Origins at which the gateway answers; `None` where it can at none but its own.
        exchange: Who answers in the place of the models' servers, if somebody does.
        unreachable: Told of a place to which no connection could be made, and why not.
    """

    def __init__(
        self,
        gateway: Gateway,
        clerk: Clerk,
        limits: Limits,
        *,
        origin: str,
        intercepted: Sequence[Address] | None,
        exchange: Exchange | None,
        unreachable: Unreachable,
    ) -> None:
        self._gateway = gateway
        self.clerk = clerk
        self._limits = limits
        self.origin = read_address(origin)
        self._intercepted = intercepted
        self._exchange = exchange
        self._unreachable = unreachable
        self._rejections: OrderedDict[int, tuple[ModelAuth, Rejections]] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()

    def open_own(self, inner: CallScope, request: RolloutRequest[Any]) -> Session:
        """Open the session of a rollout.

        Raises:
            ValueError: its base URL cannot be asked.
        """
        asked = HeaderRequest(
            request=0, call=0, binding=None, rollout=request.rollout_id, base_url=request.base_url,
            model=request.model, rollout_id=request.rollout_id,
        )  # fmt: skip
        credentials = OwnHeaders(self.clerk, inner, asked)
        upstream = self._gateway.upstream(request.base_url, credentials, rejections=self._refused(inner, asked))
        return self._gateway.open(
            self._gateway.free_id(request.rollout_id),
            self._answering(request.rollout_id, None, Reporting(upstream, self._unreachable)),
            rollout_id=request.rollout_id,
            model=request.model,
            base_url=request.base_url,
        )

    def open_bound(self, lent: BoundHeaders, rollout_id: str, at: Sequence[str], base_url: str) -> Session:
        """Open the session of a binding.

        Args:
            lent: The binding, and for whom.
            rollout_id: The rollout, or the call in words.
            at: URLs and paths at which its key is good.
            base_url: One of the URLs.
        """
        asked = lent.asked(None)
        upstream = self._gateway.upstream(base_url, lent, rejections=self._refused(lent.inner, asked))
        calls = self._limits.model_calls_per_rollout
        return self._gateway.open(
            self._gateway.free_id(f"{rollout_id}.{lent.name}"),
            self._answering(rollout_id, lent.name, Reporting(upstream, self._unreachable)),
            rollout_id=rollout_id,
            binding=lent.name,
            # as with headers: a call without rollouts may embed any number of documents
            budget=Budget(calls=calls * len(lent.inner.requests) or None),
            at=at,
        )

    def takes(self, address: Address) -> bool:
        """Whether the gateway answers at an address of the caller's."""
        return any(origin.same_origin(address) for origin in self._intercepted or ())

    def not_taken(self, name: str, address: Address) -> HeadersRefusedError:
        """Say why a binding cannot be used at an address."""
        fact = f"binding {name!r} goes to {address.origin}, where the gateway is not"
        if self._intercepted is None:
            return HeadersRefusedError(
                f"{fact}: it can take the place of other hosts with network='model-only' alone.",
                hint="Use that, or credentials='headers', or ask at the request's own base_url.",
            )
        return HeadersRefusedError(
            f"{fact}: workers were started without it.",
            hint=f"Bind it in isolate(auth={{{name!r}: Binding(..., urls=[...])}}), or use credentials='headers'.",
        )

    def end(self, session: Session) -> None:
        """Revoke a key at once; the calls under way with it are ended soon."""
        session.revoke()
        if not session.busy:
            return
        closing = asyncio.get_running_loop().create_task(session.close(), name="benchmax-session")
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def aclose(self) -> None:
        """Wait for the ends of calls whose sessions are over."""
        if self._closing:
            await asyncio.wait([*self._closing])

    def _answering(self, rollout_id: str, binding: str | None, default: Upstream) -> Upstream:
        return default if self._exchange is None else self._exchange.upstream(rollout_id, binding, default)

    def _refused(self, inner: CallScope, asked: HeaderRequest) -> Rejections:
        """What became of refused headers of the source that a request's headers come from."""
        try:
            auth = self.clerk.source(inner, asked)
        except HeadersRefusedError:
            # nobody will be asked; whoever calls is told why
            return Rejections()
        if id(auth) not in self._rejections:
            # kept with it, so that its number stays its own
            self._rejections[id(auth)] = (auth, Rejections())
        self._rejections.move_to_end(id(auth))
        if len(self._rejections) > SOURCES:
            self._rejections.popitem(last=False)
        return self._rejections[id(auth)][1]


class Reporting:
    """An upstream of which somebody is told when its server cannot be reached.

    Args:
        upstream: Sends the calls.
        unreachable: Told of the place, and of the reason.
    """

    def __init__(self, upstream: HttpUpstream, unreachable: Unreachable) -> None:
        self._upstream = upstream
        self._unreachable = unreachable

    async def send(self, call: ModelCall) -> Answer:
        """Send one call on.

        Raises:
            UpstreamError: there is no answer.
        """
        try:
            return await self._upstream.send(call)
        except UpstreamError as error:
            if error.code == UNREACHABLE:
                place = read_address((call.url or self._upstream.base_url).partition("?")[0])
                self._unreachable(place, str(error.__cause__ or error))
            raise
