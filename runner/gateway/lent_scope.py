"""What a worker asks in one call, where it is given session keys in the place of credentials.

Comes in: header requests, each of which may be forged. Goes out: keys, for what the caller's own scope covers. Refuses
what that does not cover, and what leads to places where the gateway is not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from benchmax.auth import StaticBearerAuth
from benchmax.envs.shared_types import RolloutRequest
from runner.broker import CallScope
from runner.broker.address import address_or_none, read_address
from runner.broker.binding import Binding, named
from runner.broker.scope import Grant
from runner.errors import HeadersRefusedError
from runner.gateway.lending import Lender
from runner.gateway.real_headers import BoundHeaders
from runner.gateway.session import Collected, Session
from runner.protocol import HeaderRequest


class LentScope(CallScope):
    """What a worker asks in one call: it is given session keys. Has a session for each rollout from the beginning.

    Args:
        lender: Opens sessions.
        inner: What the call may ask headers for.
        what: The call in words: what its traces have in the place of a rollout's id.

    Raises:
        ValueError: the base URL of a request cannot be asked.
    """

    __slots__ = ("_bound", "_inner", "_lender", "_own", "_paths", "_what", "_workers")

    stands_in = True

    def __init__(self, lender: Lender, inner: CallScope, what: str) -> None:
        self._lender = lender
        self._inner = inner
        self._what = what
        self._own: dict[str, Session] = {}
        self._paths: dict[str, str] = {}
        self._bound: dict[tuple[str, str | None], BoundHeaders] = {}
        self._workers = 0
        requests: dict[str, RolloutRequest[Any]] = {}
        try:
            for rollout_id, request in inner.requests.items():
                session = self._own[rollout_id] = lender.open_own(inner, request)
                self._paths[session.path] = rollout_id
                requests[rollout_id] = replace(
                    request,
                    base_url=f"{lender.origin.origin}{session.path}",
                    model_auth=StaticBearerAuth(session.key),
                )
        except BaseException:
            self._revoke()
            raise
        super().__init__(inner.bindings, requests, inner.context, replaced=inner.replaced)

    def decide(self, request: HeaderRequest) -> Grant:
        """Return the key for a request.

        Raises:
            HeadersRefusedError: the request is not covered, or goes where the gateway is not.
        """
        if request.binding is None:
            return self._own_grant(request)
        self.check_rollout(request)
        binding = named(request.binding, self.bindings)
        rollout_id = self._rollout_at(request.base_url)
        real = request.base_url if rollout_id is None else self._inner.requests[rollout_id].base_url
        self._inner.check_covered(request.binding, binding, real)
        if rollout_id is None and not self._lender.takes(read_address(real)):
            raise self._lender.not_taken(request.binding, read_address(real))
        lent = self._lent(request, binding, real)
        lent.note(real, request)
        return Grant(StaticBearerAuth(lent.session.key), request.base_url, request.model, request.rollout_id, False)

    def enter(self) -> None:
        """A worker works on the call from now on."""
        self._workers += 1

    def leave(self) -> None:
        """A worker has ended the call; with the last of them all keys are good for nothing."""
        self._workers -= 1
        if not self._workers:
            self._revoke()

    def end(self, *rollout_ids: str) -> None:
        """Rollouts have their outcome, or ran out of time: their own keys are good for nothing any more."""
        super().end(*rollout_ids)
        self._inner.end(*rollout_ids)
        for rollout_id in rollout_ids:
            if rollout_id in self._own:
                self._lender.end(self._own[rollout_id])

    async def collect(self) -> Mapping[str, Collected]:
        """End everything, and return what became of each rollout's own session."""
        self._revoke()
        return {rollout_id: await session.collect() for rollout_id, session in self._own.items()}

    def _revoke(self) -> None:
        for session in (*self._own.values(), *(lent.session for lent in self._bound.values())):
            if not session.is_over:
                self._lender.end(session)
        self._bound.clear()

    def _rollout_at(self, base_url: str) -> str | None:
        """The rollout of this call whose session is at a base URL; `None` for one elsewhere than at the gateway."""
        address = address_or_none(base_url)
        if address is None or not address.same_origin(self._lender.origin):
            return None
        rollout_id = self._paths.get(address.path)
        if rollout_id is None:
            raise HeadersRefusedError(f"no rollout of this call has its session at {base_url}.")
        return rollout_id

    def _lent(self, request: HeaderRequest, binding: Binding, real: str) -> BoundHeaders:
        assert request.binding is not None
        key = (request.binding, request.rollout)
        lent = self._bound.get(key)
        if lent is None:
            if not self._workers:
                raise HeadersRefusedError("headers were asked for outside of any call in flight.")
            lent = BoundHeaders(self._lender.clerk, self._inner, request.binding, request.rollout, real)
            at = [*binding.urls]
            at += [path for path, rollout_id in self._paths.items() if self._covers(binding, rollout_id)]
            lent.session = self._lender.open_bound(lent, request.rollout or self._what, at, real)
            self._bound[key] = lent
        return lent

    def _covers(self, binding: Binding, rollout_id: str) -> bool:
        url = self._inner.requests[rollout_id].base_url
        return not binding.addresses or binding.covers(url, ())
