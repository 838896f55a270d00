"""Holds the caller's credential sources. They never leave; what they say for one request does, if the policy allows it.

Comes in: what the caller bound. Goes out: scopes for its calls, a desk for each worker, and the audit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from benchmax.auth import bind_model_auth, bound_model_auth
from benchmax.envs.shared_types import RolloutRequest
from runner.broker.audit import AuditCount, AuditEntry, AuditTrail
from runner.broker.binding import AuthValue, as_binding
from runner.broker.clerk import Clerk
from runner.broker.desk import HeaderDesk
from runner.broker.flight import Sources
from runner.broker.scope import CallScope
from runner.limits import Limits
from runner.protocol import AuthToWorker
from runner.redaction import Redactor


class Broker:
    """The credentials of one isolated environment.

    Args:
        auth: What `InjectedAuth` names in the bundle resolve to, unless `bind_model_auth` is active around a call.
        redactor: Learns every secret that is handed out.

    Raises:
        TypeError, ValueError: an entry of `auth` is not valid.
    """

    def __init__(self, auth: Mapping[str, AuthValue] | None, redactor: Redactor) -> None:
        self._bindings = {name: as_binding(name, value) for name, value in (auth or {}).items()}
        self._redactor = redactor
        self._trail = AuditTrail(redactor.clean)
        self._sources = Sources()
        self._construction: CallScope | None = None
        self.outer: Callable[[CallScope], CallScope] = lambda scope: scope
        """What workers ask in the place of a call's own scope: the same, unless what they get is to stand in for it."""

    def scope(self, requests: Iterable[RolloutRequest[Any]] = ()) -> CallScope:
        """Capture what a call made here and now may ask for.

        A binding of `bind_model_auth` that is active replaces the `auth` argument whole.
        """
        by_id = {request.rollout_id: request for request in requests}
        bound = bound_model_auth()
        if bound is not None:
            bindings = {name: as_binding(name, auth) for name, auth in bound.items()}
            return CallScope(bindings, by_id, replaced=True)
        if not self._bindings:
            return CallScope(self._bindings, by_id)
        # as in process: the caller's own sources may refer to each other by name
        with bind_model_auth({name: binding.auth for name, binding in self._bindings.items()}):
            return CallScope(self._bindings, by_id)

    def construction(self) -> CallScope:
        """Return what the environment's constructor may ask for: what was bound when it was constructed first.

        A worker that replaces another is started by whatever call happens to need it.
        """
        if self._construction is None:
            self._construction = self.outer(self.scope())
        return self._construction

    def desk(self, scopes: Mapping[int, CallScope], limits: Limits, send: Callable[[AuthToWorker], None]) -> HeaderDesk:
        """Return the desk of one worker.

        Args:
            scopes: Its calls in flight by number, always as they are now.
            limits: How often and how long may be asked.
            send: Sends an answer to it.
        """
        return HeaderDesk(self._sources, self._trail, self._redactor, scopes, limits, send)

    def clerk(self, limits: Limits) -> Clerk:
        """Return who asks for headers that stay in this process."""
        return Clerk(self._sources, self._trail, self._redactor, limits)

    async def aclose(self) -> None:
        """Wait for sources that were cancelled to clean up, for as long as that may take. All desks are closed."""
        await self._sources.ended()

    @property
    def audit(self) -> tuple[AuditEntry, ...]:
        """The newest requests of each verdict, in order."""
        return self._trail.entries()

    @property
    def audit_counts(self) -> tuple[AuditCount, ...]:
        """How often which place was asked for, and with what verdict, of all requests there ever were."""
        return self._trail.counts()
