"""OpenAI clients over shared connections, and the authentication that asks for headers before every HTTP attempt."""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from collections.abc import AsyncGenerator, Generator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from benchmax.auth import ModelAuth, ModelRequestContext
from benchmax.transport.async_pool import AsyncPooledTransport
from benchmax.transport.http_family import installed_auth_bases, openai_family
from benchmax.transport.sync_pool import PooledTransport

if TYPE_CHECKING:
    import httpx
    import httpx2
    from openai import AsyncOpenAI, OpenAI

__all__ = ["async_openai_client", "openai_client", "request_model_auth_class", "rollout_client"]

_EXPLICIT_AUTH_KEY = "benchmax-explicit-auth"
_RUNTIME_AUTH_KEY = "benchmax-runtime-auth"

ClientT = TypeVar("ClientT", "OpenAI", "AsyncOpenAI")


def rollout_client(base_url: str) -> AsyncOpenAI:
    """Build one rollout's client: no retries, a placeholder key that per-request headers override."""
    from openai import AsyncOpenAI, DefaultAsyncHttpxClient

    transport: Any = AsyncPooledTransport(openai_family())
    return _without_environment(
        AsyncOpenAI(
            api_key=_RUNTIME_AUTH_KEY,
            base_url=base_url,
            max_retries=0,
            http_client=DefaultAsyncHttpxClient(transport=transport),
        )
    )


def async_openai_client(
    context: ModelRequestContext, *, auth: ModelAuth, max_retries: int, timeout: float | None = None
) -> AsyncOpenAI:
    """Build an asynchronous client that asks `auth` before every attempt; `timeout` in seconds, `None`: the SDK's."""
    request_auth = request_model_auth_class()(auth, context)
    from openai import NOT_GIVEN, AsyncOpenAI

    family = openai_family()
    return _without_environment(
        AsyncOpenAI(
            api_key=_EXPLICIT_AUTH_KEY,
            base_url=context.base_url,
            max_retries=max_retries,
            timeout=NOT_GIVEN if timeout is None else timeout,
            http_client=family.http.AsyncClient(auth=request_auth, transport=AsyncPooledTransport(family)),
        )
    )


def openai_client(
    context: ModelRequestContext, *, auth: ModelAuth, max_retries: int, timeout: float | None = None
) -> OpenAI:
    """Build a synchronous client that asks `auth` before every attempt; `timeout` in seconds, `None`: the SDK's."""
    request_auth = request_model_auth_class()(auth, context)
    from openai import NOT_GIVEN, OpenAI

    family = openai_family()
    return _without_environment(
        OpenAI(
            api_key=_EXPLICIT_AUTH_KEY,
            base_url=context.base_url,
            max_retries=max_retries,
            timeout=NOT_GIVEN if timeout is None else timeout,
            http_client=family.http.Client(auth=request_auth, transport=PooledTransport(family)),
        )
    )


def _without_environment(client: ClientT) -> ClientT:
    # the SDK takes these from OPENAI_* variables and would send them to whatever server the URL names
    client.organization = None
    client.project = None
    if os.environ.get("OPENAI_CUSTOM_HEADERS"):
        client._custom_headers = {}
    return client


class _RequestAuthFlow:
    """Sets headers on a request, asked for immediately before it is sent.

    Args:
        auth: Credential source.
        context: What it is told about the request.

    Raises:
        TypeError: `auth` is not a `ModelAuth`.
    """

    def __init__(self, auth: ModelAuth, context: ModelRequestContext) -> None:
        if not isinstance(auth, ModelAuth):
            raise TypeError(
                f"A model client needs a ModelAuth as auth, got {type(auth).__name__}; "
                "use StaticBearerAuth(token) or an object with an async headers_for_request(context) method."
            )
        self._auth = auth
        self._context = context

    async def async_auth_flow(self, request: Any) -> AsyncGenerator[Any, Any]:
        """Await the headers and yield the request once."""
        request.headers.update(await self._auth.headers_for_request(self._context))
        yield request

    def sync_auth_flow(self, request: Any) -> Generator[Any, Any, None]:
        """Wait for the headers, whether or not an event loop runs in this thread, and yield the request once."""
        request.headers.update(_headers_blocking(self._auth, self._context))
        yield request


if TYPE_CHECKING:

    class RequestModelAuth(_RequestAuthFlow, httpx.Auth, httpx2.Auth):
        """Client-level authentication for httpx and httpx2 clients that asks a `ModelAuth` before every attempt."""

        def auth_flow(self, request: Any) -> Generator[Any, Any, None]: ...


@cache
def request_model_auth_class() -> type[RequestModelAuth]:
    """Make the class on the `Auth` of whichever HTTP libraries are installed, so that each accepts it."""
    namespace = {"__module__": "benchmax.auth", "__doc__": _RequestAuthFlow.__doc__}
    made: Any = type("RequestModelAuth", (_RequestAuthFlow, *installed_auth_bases()), namespace)
    return made  # type: ignore[no-any-return]


def _headers_blocking(auth: ModelAuth, context: ModelRequestContext) -> Mapping[str, str]:
    async def resolve() -> Mapping[str, str]:
        return await auth.headers_for_request(context)

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(resolve())
    # a loop runs in this thread, and a second one cannot: resolve in another thread, with this context's bindings
    results: list[Mapping[str, str]] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            results.append(asyncio.run(resolve()))
        except BaseException as error:  # noqa: BLE001 - carried over to the calling thread
            errors.append(error)

    thread = threading.Thread(
        target=contextvars.copy_context().run, args=(work,), name="benchmax-model-auth", daemon=True
    )
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    if not results:
        raise RuntimeError("The thread that asks for model headers ended without a result; ask again.")
    return results[0]
