"""An upstream over HTTP: a model's server, asked with the caller's own credentials.

Comes in: a call without any credential. Goes out: the server's answer as it comes. The headers are asked for anew for
each call. No cookie is kept, and no redirect is followed that leads to another origin.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import urljoin

from benchmax.transport.async_pool import AsyncPooledTransport, Connections
from benchmax.transport.http_family import HttpFamily
from runner.broker.address import address_or_none, read_address
from runner.errors import CredentialSourceError, HeadersRefusedError, RunnerError
from runner.gateway.encoding import Inflater
from runner.gateway.exchange import ModelCall, UpstreamError
from runner.gateway.header_rules import answered_headers
from runner.gateway.rejection import Rejections
from runner.limits import MAX_REDIRECTS, Limits

if TYPE_CHECKING:
    import httpx

_KEEPING_METHOD: Final = frozenset({307, 308})
_REDIRECTS: Final = _KEEPING_METHOD | {301, 302, 303}
_INFLATED: Final = frozenset({"gzip", "x-gzip", "deflate"})


class Credentials(Protocol):
    """Where an upstream gets the real headers of each call from."""

    async def headers(self, call: ModelCall) -> Mapping[str, str]:
        """Return the headers to send with a call; asked for every time.

        Raises:
            RunnerError: there are none, or the call may not have them.
            UpstreamError: the same, in the words that the client is to have.
        """

    async def rejected(self, call: ModelCall, headers: Mapping[str, str]) -> bool:
        """The server answered 401 to these headers. Return whether others are worth another try."""


class HttpUpstream:
    """Sends calls to one base URL, or to wherever a call itself says.

    Args:
        base_url: The model's API. A call with a `url` of its own goes there instead.
        credentials: Gives the headers of each call; it also decides whether a call may have them at its URL.
        limits: How long to wait.
        connections: Where connections are kept; `None` shares those of the running event loop.
        rejections: What became of refused headers, where several upstreams have them from the same source.

    Raises:
        ValueError: `base_url` is no URL that everybody reads the same.
    """

    def __init__(
        self,
        base_url: str,
        credentials: Credentials,
        *,
        limits: Limits,
        connections: Connections | None = None,
        rejections: Rejections | None = None,
    ) -> None:
        read_address(base_url)
        self.base_url = base_url.rstrip("/")
        self._credentials = credentials
        self._rejections = rejections or Rejections()
        self._family = _family()
        self._transport = AsyncPooledTransport(self._family, connections)
        self._urls: dict[str, httpx.URL] = {}
        silence, connect = limits.model_silence_s, limits.model_connect_s
        self._timeouts = {"connect": connect, "read": silence, "write": silence, "pool": None}

    async def send(self, call: ModelCall) -> HttpAnswer:
        """Send one call on; after a 401, once more where the credentials say so.

        Raises:
            UpstreamError: there is no answer.
        """
        since = self._rejections.count
        headers = await self._headers(call)
        answer = await self._ask(call, headers)
        if answer.status != 401:
            return answer
        try:
            if await self._rejected(call, headers, since):
                fresh = await self._headers(call)
                if fresh != headers:
                    await answer.aclose()
                    return await self._ask(call, fresh)
        except BaseException:
            await answer.aclose()
            raise
        return answer

    async def _headers(self, call: ModelCall) -> Mapping[str, str]:
        try:
            return await self._credentials.headers(call)
        except RunnerError as error:
            raise _no_credential(error) from error

    async def _rejected(self, call: ModelCall, headers: Mapping[str, str], since: int) -> bool:
        try:
            return await self._rejections.tell(headers, lambda: self._credentials.rejected(call, headers), since=since)
        except RunnerError as error:
            raise _no_credential(error) from error

    async def _ask(self, call: ModelCall, credentials: Mapping[str, str]) -> HttpAnswer:
        url = f"{self.base_url}/{call.route}" if call.url is None else call.url
        given = {name.lower() for name in credentials}
        pairs = [pair for pair in call.headers.items() if pair[0].lower() not in given]
        pairs += [*credentials.items(), ("accept-encoding", "identity")]
        headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in pairs]
        for _ in range(MAX_REDIRECTS + 1):
            answer = await self._exchange(call, url, headers)
            if answer.status not in _REDIRECTS:
                return answer
            await answer.aclose()
            url = _redirected(call, url, answer)
        raise UpstreamError(f"{_place(url)} redirects more than {MAX_REDIRECTS} times.", code="upstream_redirect")

    async def _exchange(self, call: ModelCall, url: str, headers: list[tuple[bytes, bytes]]) -> HttpAnswer:
        http = self._family.http
        try:
            request = http.Request(
                call.method,
                self._url(url),
                headers=headers,
                content=call.body or None,
                extensions={"timeout": self._timeouts},
            )
            response = await self._transport.handle_async_request(request)
        except (http.TransportError, http.InvalidURL) as error:
            raise self._failure(error, url) from error
        return HttpAnswer(self, response, url)

    def _url(self, url: str) -> httpx.URL:
        parsed = self._urls.get(url)
        if parsed is None:
            parsed = self._family.http.URL(url)
            if len(self._urls) < len(_USUAL_ROUTES):
                self._urls[url] = parsed
        return parsed

    def _failure(self, error: Exception, url: str) -> UpstreamError:
        """Say what one of the HTTP library's errors means for the client."""
        http, place = self._family.http, _place(url)
        # the library's text names addresses and system errors, never headers
        why = str(error).strip().rstrip(".") or type(error).__name__
        if isinstance(error, http.ConnectTimeout):
            return UpstreamError(
                f"{place} cannot be reached: no connection within {self._timeouts['connect']:g} s.",
                code="upstream_unreachable",
                retry=True,
            )
        if isinstance(error, http.TimeoutException):
            return UpstreamError(
                f"{place} sent nothing for {self._timeouts['read']:g} s.",
                code="upstream_timeout",
                status=504,
                retry=True,
            )
        if isinstance(error, (http.ConnectError, http.ProxyError)):
            return UpstreamError(f"{place} cannot be reached: {why}.", code="upstream_unreachable", retry=True)
        if isinstance(error, (http.UnsupportedProtocol, http.LocalProtocolError, http.InvalidURL)):
            return UpstreamError(f"{place} cannot be asked this: {why}.", code="upstream_unreachable")
        return UpstreamError(f"{place} closed the connection midway: {why}.", code="upstream_closed", retry=True)


_USUAL_ROUTES: Final = ("chat/completions", "embeddings", "models")


class HttpAnswer:
    """A server's answer; see `Answer`."""

    def __init__(self, upstream: HttpUpstream, response: httpx.Response, url: str) -> None:
        self.status = response.status_code
        self.headers: Sequence[tuple[str, str]] = tuple(answered_headers(response.headers.raw))
        self._upstream = upstream
        self._response = response
        self._url = url
        self._body = self._pieces()

    @property
    def location(self) -> str:
        """Where a redirect leads."""
        return str(self._response.headers.get("location", ""))

    def body(self) -> AsyncIterator[bytes]:
        """Give the body, decoded; once.

        Raises:
            UpstreamError: it broke off, or cannot be decoded.
        """
        return self._body

    async def _pieces(self) -> AsyncGenerator[bytes, None]:
        inflater = self._inflater()
        stream: Any = self._response.stream
        try:
            async for data in stream:
                if inflater is None:
                    yield data
                else:
                    for piece in inflater.feed(data):
                        yield piece
            if inflater is not None:
                inflater.finish()
        except self._upstream._family.http.TransportError as error:
            raise self._upstream._failure(error, self._url) from error
        except ValueError as error:
            raise UpstreamError(
                f"{_place(self._url)} sent a body that cannot be decompressed: {error}.", code="upstream_invalid"
            ) from error

    async def aclose(self) -> None:
        """Let go of the connection: it is used again if the body has been read to its end, and closed if not."""
        await self._body.aclose()
        await self._response.stream.aclose()  # type: ignore[union-attr]  # an asynchronous client's stream

    def _inflater(self) -> Inflater | None:
        encoding = str(self._response.headers.get("content-encoding", "identity")).strip().lower()
        if encoding in ("", "identity"):
            return None
        if encoding not in _INFLATED:
            raise UpstreamError(
                f"{_place(self._url)} sent a body in an encoding that it was not asked for.", code="upstream_invalid"
            )
        return Inflater()


@cache
def _family() -> HttpFamily:
    return HttpFamily("httpx")


def _redirected(call: ModelCall, url: str, answer: HttpAnswer) -> str:
    """Return where a redirect leads, if that is within the same origin and asks the same.

    Raises:
        UpstreamError: it is not.
    """
    # in a query any character may stand
    here = read_address(url.partition("?")[0])
    try:
        target = urljoin(url, answer.location)
    except ValueError:
        target = ""
    there = address_or_none(target)
    if there is None or not answer.location:
        raise UpstreamError(f"{here.origin} redirects to nowhere that can be read.", code="upstream_redirect")
    if not here.same_origin(there):
        raise UpstreamError(
            f"{here.origin} redirects to {there.origin}, which is another server. "
            "If it is meant, use its address as the base URL.",
            code="upstream_redirect",
        )
    if call.method != "GET" and answer.status not in _KEEPING_METHOD:
        raise UpstreamError(
            f"{here.origin} redirects a {call.method} with status {answer.status}, which drops its body.",
            code="upstream_redirect",
        )
    return target


def _no_credential(error: RunnerError) -> UpstreamError:
    refused = isinstance(error, HeadersRefusedError) and not isinstance(error, CredentialSourceError)
    status = 403 if refused else 502
    return UpstreamError(str(error), code="credential_failed", status=status)


def _place(url: str) -> str:
    address = address_or_none(url.partition("?")[0])
    return "the model's server" if address is None else address.origin
