"""Where credentials for model requests come from, and how a runtime hands them in.

A `ModelAuth` is asked for headers immediately before every HTTP attempt. Nothing here reads an environment variable.
`RequestModelAuth` and the client factories need openai and its HTTP library; they load when first used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from openai import AsyncOpenAI, OpenAI

    from benchmax.transport.clients import RequestModelAuth as RequestModelAuth

__all__ = [
    "InjectedAuth",
    "ModelAuth",
    "ModelRequestContext",
    "RequestModelAuth",
    "StaticBearerAuth",
    "bind_model_auth",
    "create_async_openai_client",
    "create_openai_client",
]


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


@dataclass(frozen=True, slots=True)
class ModelRequestContext:
    """The request about to be authorised.

    Args:
        base_url: Base URL of the model's API.
        model: Name of the model as the server knows it.
        rollout_id: Id of the rollout; for calls outside a rollout, a label of the request.
    """

    base_url: str
    model: str
    rollout_id: str


@runtime_checkable
class ModelAuth(Protocol):
    """Whatever can produce the headers of one model request."""

    async def headers_for_request(self, context: ModelRequestContext) -> Mapping[str, str]:
        """Return the headers to set on the request described by `context`; called before every HTTP attempt."""
        ...


@dataclass(frozen=True, slots=True)
class StaticBearerAuth:
    """A fixed bearer token. It is left out of `repr` but travels in a pickle.

    Args:
        token: The token, sent as it stands.

    Raises:
        ValueError: `token` is not a string or is empty.
    """

    token: str = field(repr=False)

    def __post_init__(self) -> None:
        if not _is_text(self.token):
            raise ValueError(
                "StaticBearerAuth needs a non-empty string as token; "
                "for an endpoint without authentication pass any placeholder."
            )

    async def headers_for_request(self, context: ModelRequestContext) -> Mapping[str, str]:
        """Return exactly one `Authorization` header; `context` is ignored."""
        return {"Authorization": f"Bearer {self.token}"}


_BOUND_PROVIDERS: ContextVar[Mapping[str, ModelAuth] | None] = ContextVar("benchmax_model_auth", default=None)


@dataclass(frozen=True, slots=True)
class InjectedAuth:
    """A serialisable reference to a credential that the runtime supplies with `bind_model_auth`.

    Args:
        name: Name under which the runtime binds the provider, such as `judge` or `embedding`.

    Raises:
        ValueError: `name` is not a string or is blank.
    """

    name: str

    def __post_init__(self) -> None:
        if not _is_text(self.name) or self.name.isspace():
            raise ValueError(f"InjectedAuth needs a non-empty name, got {self.name!r}; use for example 'judge'.")

    async def headers_for_request(self, context: ModelRequestContext) -> Mapping[str, str]:
        """Ask the provider that is bound under the name now; nothing is cached between calls.

        Raises:
            RuntimeError: nothing is bound under the name, or what is bound is itself an `InjectedAuth`.
        """
        providers = _BOUND_PROVIDERS.get()
        provider = None if providers is None else providers.get(self.name)
        if provider is None:
            bound = ", ".join(sorted(map(repr, providers or ()))) or "nothing"
            raise RuntimeError(
                f"No runtime model-auth provider is bound under {self.name!r} (bound: {bound}); "
                f"run the environment inside bind_model_auth({{{self.name!r}: ...}})."
            )
        if isinstance(provider, InjectedAuth):
            raise RuntimeError(
                f"The provider bound under {self.name!r} cannot reference another InjectedAuth ({provider.name!r}); "
                "bind the credential source itself."
            )
        return await provider.headers_for_request(context)


@contextmanager
def bind_model_auth(providers: Mapping[str, ModelAuth]) -> Iterator[None]:
    """Make `providers` what every `InjectedAuth` resolves to inside the `with` block.

    The mapping is copied. A nested binding replaces the outer one as a whole. Tasks and threads that copy the
    context keep the binding that was current when the copy was made.

    Args:
        providers: Credential sources by name; may be empty.

    Raises:
        ValueError: a name is not a string or is blank.
        TypeError: a value is not a `ModelAuth`.
    """
    bound = dict(providers)
    for name, provider in bound.items():
        if not _is_text(name) or name.isspace():
            raise ValueError(f"bind_model_auth needs non-empty strings as names, got {name!r}.")
        if not isinstance(provider, ModelAuth):
            raise TypeError(
                f"bind_model_auth needs a ModelAuth under {name!r}, got {type(provider).__name__}; "
                "give it an async headers_for_request(context) method."
            )
    token = _BOUND_PROVIDERS.set(bound)
    try:
        yield
    finally:
        _BOUND_PROVIDERS.reset(token)


def bound_model_auth() -> Mapping[str, ModelAuth] | None:
    """Return the providers bound in this context: `None` outside any binding, empty inside an empty one."""
    return _BOUND_PROVIDERS.get()


def create_openai_client(
    *, model: str, base_url: str, auth: ModelAuth, request_id: str, max_retries: int = 2
) -> OpenAI:
    """Build a synchronous OpenAI client that asks `auth` for headers before every HTTP attempt.

    The caller owns and closes the client.

    Args:
        model: Model name told to `auth`; requests still name their own.
        base_url: Base URL of the API.
        auth: Credential source.
        request_id: Label told to `auth` in place of a rollout id.
        max_retries: How often the SDK retries a failed request.

    Raises:
        TypeError: `auth` is not a `ModelAuth`.
    """
    from benchmax import transport

    return transport.openai_client(ModelRequestContext(base_url, model, request_id), auth=auth, max_retries=max_retries)


def create_async_openai_client(
    *, model: str, base_url: str, auth: ModelAuth, request_id: str, max_retries: int = 2
) -> AsyncOpenAI:
    """Build an asynchronous OpenAI client that asks `auth` for headers before every HTTP attempt.

    The caller owns and closes the client.

    Args:
        model: Model name told to `auth`; requests still name their own.
        base_url: Base URL of the API.
        auth: Credential source.
        request_id: Label told to `auth` in place of a rollout id.
        max_retries: How often the SDK retries a failed request.

    Raises:
        TypeError: `auth` is not a `ModelAuth`.
    """
    from benchmax import transport

    return transport.async_openai_client(
        ModelRequestContext(base_url, model, request_id), auth=auth, max_retries=max_retries
    )


def __getattr__(name: str) -> Any:
    if name == "RequestModelAuth":
        from benchmax.transport import request_model_auth_class

        return globals().setdefault(name, request_model_auth_class())
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
