"""Who may have which headers: the caller's credential sources, asked per model request, and a trail of every answer.

Comes in: header requests of a worker. Goes out: headers, or a refusal that names the argument to add. Refuses: a
request outside of any call in flight, for another model or URL than a rollout's own, or to an origin that the
binding does not cover. Credentials themselves never leave; the header values that do are remembered for redaction.
"""

from __future__ import annotations

import asyncio
import contextvars
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from benchmax.auth import InjectedAuth, ModelAuth, ModelRequestContext, bound_model_auth
from benchmax.envs.shared_types import RolloutRequest
from runner.errors import HeadersRefusedError
from runner.limits import MAX_ID_CHARS, MAX_TEXT_CHARS
from runner.protocol import AuthToWorker, HeaderRequest, Headers, HeadersRefused, RemoteFailure, bounded
from runner.redaction import Redactor

_AMBIGUOUS: Final = re.compile(r"[\x00-\x20\x7f\\]")
"""Characters of a URL that parsers disagree about: some drop them, some take a backslash for a slash."""
_DOTS: Final = re.compile(r"(?:\.|%2e){1,2}(?:;.*)?", re.IGNORECASE)
_HIDDEN_SLASH: Final = re.compile(r"%2f|%5c", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Binding:
    """A credential source and the URLs it may be used for.

    Args:
        auth: Anything that satisfies `benchmax.auth.ModelAuth`.
        urls: Base URLs whose requests are answered: same scheme, host and port, and a path at or below theirs.
            Without any, only the origins of the rollouts' own model endpoints are answered, since a judge's URL
            comes from the untrusted bundle.

    Raises:
        TypeError: `auth` is no `ModelAuth`, or a URL no string.
        ValueError: a URL has no scheme or host.
    """

    auth: ModelAuth
    urls: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.auth, ModelAuth):
            raise TypeError(f"a Binding's auth must satisfy ModelAuth, got {type(self.auth).__name__}")
        object.__setattr__(self, "urls", (self.urls,) if isinstance(self.urls, str) else tuple(self.urls))
        for url in self.urls:
            if not isinstance(url, str):
                raise TypeError(f"a Binding's urls must be strings, got {type(url).__name__}")
            origin(url)


AuthValue = ModelAuth | Binding


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One answered or refused header request. Holds no value of any header.

    Args:
        at: Seconds since the epoch.
        binding: Name of the binding, or `None` for a rollout's own auth.
        rollout_id: The rollout whose own auth was asked for, else the label the request carried.
        base_url: Where the request goes, as the worker said.
        model: Which model, as the worker said.
        answered: Whether headers were handed out.
        reason: Why not; empty when answered.
    """

    at: float
    binding: str | None
    rollout_id: str
    base_url: str
    model: str
    answered: bool
    reason: str = ""


@dataclass(slots=True)
class CallScope:
    """What one call in flight may ask for.

    Args:
        bindings: By name, as bound by the caller when the call was made.
        requests: The call's rollout requests by rollout id.
        context: The caller's context, in which its providers run.
    """

    bindings: Mapping[str, Binding]
    requests: Mapping[str, RolloutRequest[Any]] = field(default_factory=dict)
    context: contextvars.Context = field(default_factory=contextvars.copy_context)

    def names(self) -> list[str]:
        """Names that the worker has to bind."""
        return sorted(self.bindings)


class Broker:
    """Answers the header requests of one isolated environment's workers.

    Args:
        auth: What `InjectedAuth` names in the bundle resolve to, unless `bind_model_auth` is active around a call.
        redactor: Learns every value that is handed out.
    """

    def __init__(self, auth: Mapping[str, AuthValue] | None, redactor: Redactor) -> None:
        self._auth = {name: _binding(name, value) for name, value in (auth or {}).items()}
        self._redactor = redactor
        self.audit: list[AuditEntry] = []

    def scope(self, requests: Iterable[RolloutRequest[Any]] = ()) -> CallScope:
        """Capture what a call made here and now may ask for.

        A binding of `bind_model_auth` that is active replaces the `auth` argument whole.
        """
        bound = bound_model_auth()
        bindings = self._auth if bound is None else {name: Binding(auth) for name, auth in bound.items()}
        return CallScope(bindings, {request.rollout_id: request for request in requests})

    async def answer(self, request: HeaderRequest, scopes: Mapping[int, CallScope]) -> AuthToWorker:
        """Answer one request; a refusal is an answer too. Never raises.

        Args:
            request: What the worker sent.
            scopes: The calls of that worker that are in flight.
        """
        try:
            auth, context, scope = self._decide(request, scopes)
        except HeadersRefusedError as refusal:
            return self._refuse(request, "HeadersRefusedError", str(refusal))
        # a task of its own, since only a task can run in the caller's context
        task = asyncio.get_running_loop().create_task(_resolve(auth, context), context=scope.context)
        try:
            await asyncio.wait([task])
        finally:
            task.cancel()
        if task.cancelled():
            return self._refuse(request, "CancelledError", "the caller's credential source was cancelled.")
        error = task.exception()
        if error is not None:
            text = f"the caller's credential source failed: {_text_of(error)}"
            return self._refuse(request, type(error).__name__, text)
        if scopes.get(request.call) is not scope:
            return self._refuse(request, "HeadersRefusedError", "the call ended before its headers were there.")
        headers = task.result()
        for value in headers.values():
            self._redactor.learn(value)
        self._note(request, answered=True)
        return Headers(request=request.request, headers=headers)

    def _decide(
        self, request: HeaderRequest, scopes: Mapping[int, CallScope]
    ) -> tuple[ModelAuth, ModelRequestContext, CallScope]:
        scope = scopes.get(request.call)
        if scope is None:
            raise HeadersRefusedError("headers were asked for outside of any call in flight.")
        context = ModelRequestContext(request.base_url, request.model, request.rollout_id)
        if request.binding is None:
            return self._own(request, scope), context, scope
        binding = scope.bindings.get(request.binding)
        if binding is None:
            raise HeadersRefusedError(f"No runtime model-auth provider is bound under {request.binding!r}.")
        if isinstance(binding.auth, InjectedAuth):
            raise HeadersRefusedError(
                f"the provider bound as {request.binding!r} cannot reference another InjectedAuth."
            )
        if not _covered(request.base_url, binding, scope):
            raise HeadersRefusedError(
                f"binding {request.binding!r} does not cover {request.base_url}.",
                hint=f"If that is meant, pass auth={{{request.binding!r}: Binding(..., urls=[{request.base_url!r}])}} "
                f"(command line: --auth {request.binding}=env:VARIABLE@{request.base_url}).",
            )
        return binding.auth, context, scope

    def _own(self, request: HeaderRequest, scope: CallScope) -> ModelAuth:
        rollout = scope.requests.get(request.rollout or "")
        if rollout is None:
            raise HeadersRefusedError(f"no rollout {request.rollout!r} is in flight in this call.")
        if request.base_url.rstrip("/") != rollout.base_url.rstrip("/"):
            raise HeadersRefusedError(
                f"rollout {request.rollout!r} runs against {rollout.base_url}, not {request.base_url}.",
                hint="Its own credential is for its own endpoint; use an InjectedAuth binding for others.",
            )
        if request.model != rollout.model:
            raise HeadersRefusedError(
                f"rollout {request.rollout!r} is for model {rollout.model!r}, not {request.model!r}."
            )
        return rollout.model_auth

    def _refuse(self, request: HeaderRequest, kind: str, reason: str) -> HeadersRefused:
        reason = bounded(self._redactor.clean(reason), MAX_TEXT_CHARS)
        self._note(request, answered=False, reason=reason)
        return HeadersRefused(
            request=request.request, failure=RemoteFailure(type=bounded(kind, MAX_ID_CHARS), message=reason)
        )

    def _note(self, request: HeaderRequest, *, answered: bool, reason: str = "") -> None:
        clean = self._redactor.clean
        self.audit.append(
            AuditEntry(
                at=time.time(),
                # the worker may put a value it was given before into any of these
                binding=None if request.binding is None else clean(request.binding),
                rollout_id=clean(request.rollout or request.rollout_id),
                base_url=clean(request.base_url),
                model=clean(request.model),
                answered=answered,
                reason=reason,
            )
        )


def origin(url: str) -> tuple[str, str, int | None]:
    """Split off a URL's scheme, host and port, with the scheme's own port filled in.

    Raises:
        ValueError: the URL has no scheme or host, or its port is no number.
    """
    parts = urlsplit(url)
    if not parts.scheme or not parts.hostname:
        raise ValueError(f"{url!r} is not a base URL such as https://judge.example/v1")
    port = parts.port if parts.port is not None else {"http": 80, "https": 443}.get(parts.scheme.lower())
    return parts.scheme.lower(), parts.hostname.lower(), port


def _covered(url: str, binding: Binding, scope: CallScope) -> bool:
    wanted = _origin_or_none(url)
    # a provider may make a credential for this very URL, so what it says must not depend on who reads it
    if wanted is None or _AMBIGUOUS.search(url) or "@" in urlsplit(url).netloc:
        return False
    if not binding.urls:
        return any(wanted == _origin_or_none(request.base_url) for request in scope.requests.values())
    path = urlsplit(url).path.rstrip("/") + "/"
    # a dot segment could climb out of the covered path after this comparison
    if _HIDDEN_SLASH.search(path) or any(_DOTS.fullmatch(segment) for segment in path.split("/")):
        return False
    return any(
        wanted == origin(base) and path.startswith(urlsplit(base).path.rstrip("/") + "/") for base in binding.urls
    )


def _origin_or_none(url: str) -> tuple[str, str, int | None] | None:
    try:
        return origin(url)
    except ValueError:
        return None


async def _resolve(auth: ModelAuth, context: ModelRequestContext) -> dict[str, str]:
    # any duck-typed provider qualifies, so what it returns is not what the annotation says until checked
    headers: object = await auth.headers_for_request(context)
    if not isinstance(headers, Mapping) or not all(
        isinstance(name, str) and isinstance(value, str) for name, value in headers.items()
    ):
        raise TypeError(f"{type(auth).__name__}.headers_for_request must return a mapping of str to str")
    # exact strings: what a subclass adds would not cross
    return {_sendable(name): _sendable(value) for name, value in headers.items()}


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as broken:  # noqa: BLE001 - a request has to be answered whatever a provider's error does
        return f"{type(broken).__name__} while its text was asked for"


def _sendable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        # the error's own text would quote the value's surroundings
        raise ValueError("a header holds characters that are not valid text") from None
    return str.__str__(text)


def _binding(name: object, value: AuthValue) -> Binding:
    if not isinstance(name, str) or not name.strip():
        raise ValueError(f"auth: names must be non-empty strings, got {name!r}")
    if isinstance(value, Binding):
        return value
    if not isinstance(value, ModelAuth):
        raise TypeError(f"auth[{name!r}] must be a ModelAuth or a Binding, got {type(value).__name__}")
    return Binding(value)
