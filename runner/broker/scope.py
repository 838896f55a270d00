"""What one call in flight may ask for: the policy.

Comes in: a header request, which the worker may have forged. Goes out: the credential source to ask and what to tell
it. Refuses: another model or URL than a rollout's own, a rollout that is over, a URL that a binding does not cover.
"""

from __future__ import annotations

import contextvars
import shlex
from collections.abc import Mapping
from typing import Any, NamedTuple

from benchmax.auth import InjectedAuth, ModelAuth, ModelRequestContext
from benchmax.envs.shared_types import RolloutRequest
from runner.broker.address import Address, address_or_none, read_address
from runner.broker.binding import Binding, named
from runner.errors import HeaderLimitError, HeadersRefusedError
from runner.protocol import HeaderRequest


class Grant(NamedTuple):
    """What a request that is covered leads to.

    Args:
        auth: The source to ask.
        base_url, model, label: What to tell it.
        blocking: Whether it has to be asked in a thread although it is asynchronous.
    """

    auth: ModelAuth
    base_url: str
    model: str
    label: str
    blocking: bool

    def context(self) -> ModelRequestContext:
        """Return what to tell the source."""
        return ModelRequestContext(self.base_url, self.model, self.label)


class CallScope:
    """What one call may ask for, from when the caller made it until it has ended.

    Args:
        bindings: By name, as bound by the caller when the call was made.
        requests: The call's rollout requests by rollout id.
        context: The caller's context, in which its credential sources run; the one of now when `None`.
        replaced: Whether `bind_model_auth` was active, so that the bindings are not those of the `auth` argument.
    """

    __slots__ = ("_asked", "_origins", "_over", "bindings", "context", "replaced", "requests")

    stands_in = False
    """Whether what it gives stands in for credentials, and is none itself."""

    def __init__(
        self,
        bindings: Mapping[str, Binding],
        requests: Mapping[str, RolloutRequest[Any]] | None = None,
        context: contextvars.Context | None = None,
        *,
        replaced: bool = False,
    ) -> None:
        self.bindings = bindings
        self.requests = requests or {}
        self.context = contextvars.copy_context() if context is None else context
        self.replaced = replaced
        self._over: set[str] = set()
        self._origins: tuple[Address, ...] | None = None
        self._asked: dict[str | None, int] = {}

    def names(self) -> list[str]:
        """Names that the worker has to bind."""
        return sorted(self.bindings)

    def enter(self) -> None:
        """A worker works on the call from now on; of a dataset there may be several."""

    def leave(self) -> None:
        """A worker has ended the call, or was told to; nothing is answered to it any more."""

    def end(self, *rollout_ids: str) -> None:
        """Rollouts have their outcome, or ran out of time: their own auth is not answered any more."""
        self._over.update(rollout_ids)

    def count(self, request: HeaderRequest, limit: int) -> None:
        """Count one request against its rollout, or one of a binding against the rollouts of the call together.

        Raises:
            HeaderLimitError: it is one too many.
        """
        key = request.rollout if request.binding is None and request.rollout in self.requests else None
        asked = self._asked[key] = self._asked.get(key, 0) + 1
        if key is None and not self.requests:
            # a dataset may embed any number of documents; its call has a deadline
            return
        if asked > limit * (1 if key is not None else len(self.requests)):
            whose = f"rollout {key!r}" if key is not None else "the rollouts of this call"
            raise HeaderLimitError(
                f"{whose} asked for headers more often than {limit} times each.",
                hint="Raise limits.headers_per_rollout if that is meant.",
            )

    def decide(self, request: HeaderRequest) -> Grant:
        """Return the source to ask for a request, and what to tell it.

        Raises:
            HeadersRefusedError: the request is not covered; the text names the argument that would allow it.
        """
        if request.binding is None:
            return self._own_grant(request)
        self.check_rollout(request)
        binding = named(request.binding, self.bindings)
        self.check_covered(request.binding, binding, request.base_url)
        return Grant(binding.auth, request.base_url, request.model, request.rollout_id, binding.blocking)

    def check_rollout(self, request: HeaderRequest) -> None:
        """Refuse a request under a binding that says it is made by a rollout which is not of this call.

        Raises:
            HeadersRefusedError: it does.
        """
        if request.rollout is not None and request.rollout not in self.requests:
            raise HeadersRefusedError(f"no rollout {request.rollout!r} is in flight in this call.")

    def still_allows(self, request: HeaderRequest) -> bool:
        """Whether a request that was allowed still is, after a while."""
        return request.binding is not None or request.rollout not in self._over

    def _own_grant(self, request: HeaderRequest) -> Grant:
        own = self.requests.get(request.rollout or "")
        if own is None:
            raise HeadersRefusedError(f"no rollout {request.rollout!r} is in flight in this call.")
        if own.rollout_id in self._over:
            raise HeadersRefusedError(f"rollout {own.rollout_id!r} is over.")
        if request.base_url != own.base_url and request.base_url.rstrip("/") != own.base_url.rstrip("/"):
            raise HeadersRefusedError(
                f"rollout {own.rollout_id!r} runs against {own.base_url}, not {request.base_url}.",
                hint="Its own credential is for its own endpoint; use an InjectedAuth binding for others.",
            )
        if request.model != own.model:
            raise HeadersRefusedError(
                f"rollout {own.rollout_id!r} is for model {own.model!r}, not {request.model!r}.",
                hint="Its own credential is for its own model; use an InjectedAuth binding for others.",
            )
        auth: ModelAuth = own.model_auth
        blocking = False
        if isinstance(auth, Binding):
            self._check_urls("model_auth", auth, own.base_url)
            blocking = auth.blocking
            auth = auth.auth
        if isinstance(auth, InjectedAuth):
            binding = named(auth.name, self.bindings)
            self._check_urls(auth.name, binding, own.base_url)
            auth, blocking = binding.auth, binding.blocking
        # in the caller's own words: a source that makes a credential for them must not be told another rollout's id
        return Grant(auth, own.base_url, own.model, own.rollout_id, blocking)

    def _check_urls(self, name: str, binding: Binding, url: str) -> None:
        """Hold a request's own binding to its URLs; without any, the caller has said by the request where it goes."""
        if binding.addresses:
            self.check_covered(name, binding, url)

    def check_covered(self, name: str, binding: Binding, url: str) -> None:
        """Refuse a URL that a binding does not cover in this call.

        Raises:
            HeadersRefusedError: it does not; the text names the argument that would allow it.
        """
        if not binding.covers(url, () if binding.addresses else self._request_origins()):
            raise self._not_covered(name, url)

    def _request_origins(self) -> tuple[Address, ...]:
        if self._origins is None:
            places = {address_or_none(request.base_url) for request in self.requests.values()}
            self._origins = tuple(place for place in places if place is not None)
        return self._origins

    def _not_covered(self, name: str, url: str) -> HeadersRefusedError:
        try:
            read_address(url)
        except ValueError as error:
            return HeadersRefusedError(f"binding {name!r} does not cover {url}: {error}.")
        argument = f"{{{name!r}: Binding(..., urls=[{url!r}])}}"
        if self.replaced:
            hint = f"If that is meant, bind_model_auth({argument}), which replaces auth= around this call."
        else:
            option = shlex.quote(f"{name}=env:VARIABLE@{url}")
            hint = f"If that is meant, pass auth={argument} (command line: --auth {option})."
        return HeadersRefusedError(f"binding {name!r} does not cover {url}.", hint=hint)
