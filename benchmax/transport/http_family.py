"""The HTTP libraries that openai is built on, alike but for their names: httpx with httpcore, httpx2 with httpcore2."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import ssl

__all__ = ["HttpFamily", "environment_proxy", "installed_auth_bases", "openai_family"]

_CORES = {"httpx": "httpcore", "httpx2": "httpcore2"}


class HttpFamily:
    """One of the libraries, with its core.

    Args:
        name: `httpx` or `httpx2`.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.http: Any = import_module(name)
        self.core: Any = import_module(_CORES[name])
        core = self.core
        self._core_errors: tuple[type[Exception], ...] = (
            core.NetworkError,
            core.ProtocolError,
            core.ProxyError,
            core.TimeoutException,
            core.UnsupportedProtocol,
        )

    @contextmanager
    def translated_errors(self) -> Iterator[None]:
        """Turn errors of the core into those of the library, which go by the same names."""
        try:
            yield
        except self._core_errors as error:
            raise getattr(self.http, type(error).__name__)(str(error)) from error

    def origin(self, url: Any) -> Any:
        """Return the core's origin of a URL."""
        return self._core_url(url).origin

    def core_request(self, request: Any) -> Any:
        """Return the core's form of a request."""
        return self.core.Request(
            method=request.method,
            url=self._core_url(request.url),
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )

    def _core_url(self, url: Any) -> Any:
        return self.core.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)

    def response(self, response: Any, stream: Any) -> Any:
        """Return the library's form of a core's response, with `stream` as its body."""
        return self.http.Response(
            status_code=response.status, headers=response.headers, stream=stream, extensions=response.extensions
        )

    def tls_context(self) -> ssl.SSLContext:
        """Return the process's TLS context; loading its certificates is nearly the whole cost of a client."""
        return _tls_context(self.name, *map(os.environ.get, ("SSL_CERT_FILE", "SSL_CERT_DIR", "SSLKEYLOGFILE")))


@cache
def _tls_context(family_name: str, *_what_it_reads: str | None) -> ssl.SSLContext:
    context: ssl.SSLContext = import_module(family_name).create_ssl_context()
    return context


@cache
def openai_family() -> HttpFamily:
    """Return the library that the installed openai builds its own clients on.

    Raises:
        ImportError: it is neither of the two.
    """
    import openai

    for base in openai.DefaultAsyncHttpxClient.__mro__:
        name = base.__module__.partition(".")[0]
        if name in _CORES:
            return HttpFamily(name)
    raise ImportError(f"openai {openai.__version__} is built on neither httpx nor httpx2; install openai>=2,<4.")


def installed_auth_bases() -> tuple[type, ...]:
    """Return the `Auth` class of every one of the two libraries that is installed.

    Raises:
        ImportError: none is.
    """
    bases = []
    for name in _CORES:
        try:
            bases.append(import_module(name).Auth)
        except ImportError:
            continue
    if not bases:
        raise ImportError("RequestModelAuth needs httpx or httpx2; install openai, which brings one of them.")
    return tuple(bases)


def environment_proxy(url: Any) -> str | None:
    """Return the proxy that the environment names for a URL's origin, which the SDK's own client would use, too."""
    from urllib.request import getproxies, proxy_bypass

    proxies = getproxies()
    proxy = proxies.get(url.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(url.host) or (url.port is not None and proxy_bypass(f"{url.host}:{url.port}")):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"
