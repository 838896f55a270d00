"""A relay between installers and indexes, so that no installer knows credentials or asks the wrong index.

Comes in: an installer's requests, as to an HTTP proxy. Goes out: pages of the one index a package may come from, with
files' addresses made whole, and files that need credentials. It listens on loopback while a venv is made, answers only
who knows a word made up for it, and sends credentials to their own index alone. Other requests pass as they are.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hmac
import json
import os
import re
import secrets
import ssl
from collections.abc import AsyncIterator, Mapping
from html import escape, unescape
from types import TracebackType
from typing import Final, Self
from urllib.parse import unquote, urljoin, urlsplit

from packaging.utils import canonicalize_name

from runner.provision.index import RELAY_HOST, Index, Indexes, file_root
from runner.provision.options import ProvisionOptions

MAX_HEAD_BYTES: Final = 64 * 1024
CONNECT_S: Final = 15.0
READ_S: Final = 60.0

_ASKED: Final = ("accept", "range", "if-none-match", "if-modified-since", "if-range", "user-agent")
_TOLD: Final = (
    *("content-type", "content-range", "accept-ranges", "etag", "last-modified", "cache-control", "age", "date"),
    *("content-encoding", "content-length"),
)
_LINK: Final = re.compile(r"(<(a|base)\b[^>]*?\shref\s*=\s*)(\"[^\"]*\"|'[^']*')", re.IGNORECASE)
_PROXY_VARIABLES: Final = ("HTTP_PROXY", "http_proxy")


class Relay:
    """The relay of one build.

    Args:
        indexes: Where packages come from.

    `refused` and `unreachable` say by host what indexes answered, or why they did not: an installer sees only this
    relay, and cannot tell.
    """

    def __init__(self, indexes: Indexes) -> None:
        self._indexes = indexes
        self._word = secrets.token_urlsafe(24)
        self._open: set[asyncio.Task[None]] = set()
        self.refused: dict[str, str] = {}
        self.unreachable: dict[str, str] = {}

    async def __aenter__(self) -> Self:
        # heavy, and needed only by those whose index has credentials
        import httpx

        self._client = httpx.AsyncClient(
            verify=_trusted(),
            timeout=httpx.Timeout(READ_S, connect=CONNECT_S),
            follow_redirects=True,
        )
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0, limit=MAX_HEAD_BYTES)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)
        await self._server.wait_closed()
        await self._client.aclose()

    @property
    def user(self) -> str:
        """User and password of those who may ask, as an address has them."""
        return f"benchmax:{self._word}"

    def environment(self) -> dict[str, str]:
        """Return the variables that send an installer's plain requests here."""
        here = f"http://{self.user}@127.0.0.1:{self.port}"
        variables = dict.fromkeys(_PROXY_VARIABLES, here)
        exempt = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
        if "*" in (entry.strip() for entry in exempt.split(",")):
            # no proxy for anything but this one
            variables.update(dict.fromkeys(("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"), ""))
            variables.update(NO_PROXY="", no_proxy="")
        return variables

    # -- one connection ----------------------------------------------------------------------------------------

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            await self._serve(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            # the installer went away, or does not speak HTTP
            pass
        finally:
            self._open.discard(task)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, _, rest = head[0].partition(" ")
        target = rest.rpartition(" ")[0]
        headers = {
            name.strip().lower(): value.strip() for name, colon, value in (line.partition(":") for line in head[1:])
        }
        expected = "Basic " + base64.b64encode(f"benchmax:{self._word}".encode()).decode()
        if not hmac.compare_digest(headers.get("proxy-authorization", "").encode(), expected.encode()):
            await _answer(writer, 407, "Proxy Authentication Required")
        elif method not in ("GET", "HEAD") or urlsplit(target).scheme != "http":
            await _answer(writer, 405, "Method Not Allowed")
        else:
            await self._forward(method, target, headers, writer)

    async def _forward(
        self, method: str, target: str, headers: Mapping[str, str], writer: asyncio.StreamWriter
    ) -> None:
        import httpx

        url, index, is_page = self._route(target)
        if url is None:
            await _answer(writer, 404, "Not Found")
            return
        asked = {name: headers[name] for name in _ASKED if name in headers}
        # a page is read and changed here; a file passes as it is, so nothing may be packed on the way
        asked["accept-encoding"] = "gzip, deflate" if is_page else "identity"
        credentials = index.credentials if index is not None else None
        auth = httpx.BasicAuth(*credentials) if credentials is not None else None
        try:
            async with self._client.stream(method, url, headers=asked, auth=auth) as response:
                if index is not None and response.status_code in (401, 403, 407):
                    self.refused[index.host] = f"{response.status_code} {response.reason_phrase}"
                told = {name: response.headers[name] for name in _TOLD if name in response.headers}
                if is_page and response.status_code == 200 and method == "GET":
                    page = self._whole(await response.aread(), told.get("content-type", ""), str(response.url))
                    told.pop("content-encoding", None)
                    await _answer(writer, 200, "OK", {**told, "content-length": str(len(page))}, _once(page))
                else:
                    body = response.aiter_raw() if method == "GET" else None
                    await _answer(writer, response.status_code, response.reason_phrase, told, body)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            host = index.host if index is not None else urlsplit(url).netloc
            reason = str(error) or type(error).__name__
            self.unreachable[host] = reason
            # too late for an answer if a part of one was sent: the closed connection tells
            with contextlib.suppress(OSError):
                await _answer(writer, 502, "Bad Gateway")

    def _route(self, target: str) -> tuple[str | None, Index | None, bool]:
        """Return the address to ask, the index it belongs to, and whether it is a page of links."""
        parts = urlsplit(target)
        if parts.hostname != RELAY_HOST:
            return target, None, False
        root = urlsplit(self._indexes.relay_root).path
        inside = parts.path.removeprefix(root)
        if inside == parts.path:
            return None, None, False
        query = f"?{parts.query}" if parts.query else ""
        if inside.startswith("/simple/") and (name := inside.removeprefix("/simple/").strip("/")) and "/" not in name:
            index = self._indexes.of_package(unquote(name))
            return f"{index.public_url.rstrip('/')}/{canonicalize_name(unquote(name))}/", index, True
        if match := re.fullmatch(r"/files/(https?)/([^/]+)/(\d*)-(/.*)", inside):
            url = f"{file_root(match[1], match[2], match[3])}{match[4]}{query}"
            # only what an index with credentials has: this is no way to anywhere else
            if (guardian := self._indexes.guardian(url)) is not None:
                return url, guardian, False
        return None, None, False

    def _whole(self, page: bytes, content_type: str, base: str) -> bytes:
        """Make the addresses on a page whole, and send those that need credentials through here."""

        def whole(link: str, to: str) -> str:
            url = urljoin(to, link)
            parts = urlsplit(url)
            bare = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
            return self._indexes.inward(bare)

        if "json" in content_type:
            try:
                content = json.loads(page)
                for file in content["files"]:
                    file["url"] = whole(file["url"], base)
            except (ValueError, KeyError, TypeError):
                # not a page of links: the installer says so better
                return page
            return json.dumps(content).encode()
        text = page.decode("utf-8", "replace")
        for match in _LINK.finditer(text):
            if match[2].lower() == "base":
                base = urljoin(base, unescape(match[3][1:-1]))
                break

        def link(match: re.Match[str]) -> str:
            if match[2].lower() == "base":
                return f'{match[1]}"{escape(self._indexes.relay_root)}/"'
            return f'{match[1]}"{escape(whole(unescape(match[3][1:-1]), base))}"'

        return _LINK.sub(link, text).encode()


@contextlib.asynccontextmanager
async def relaying(options: ProvisionOptions) -> AsyncIterator[Relay | None]:
    """Run a relay for a build that needs one; what is offline asks nobody."""
    indexes = options.indexes()
    if options.offline or not indexes.needs_relay:
        yield None
        return
    async with Relay(indexes) as relay:
        yield relay


async def _answer(
    writer: asyncio.StreamWriter,
    status: int,
    phrase: str,
    headers: Mapping[str, str] | None = None,
    body: AsyncIterator[bytes] | None = None,
) -> None:
    told = dict(headers or {"content-length": "0"})
    lines = [f"HTTP/1.1 {status} {phrase}", *(f"{name}: {value}" for name, value in told.items()), "connection: close"]
    writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
    if body is not None:
        async for block in body:
            writer.write(block)
            await writer.drain()
    await writer.drain()


async def _once(data: bytes) -> AsyncIterator[bytes]:
    yield data


def _trusted() -> ssl.SSLContext:
    """Trust what installers are told to trust, else the usual authorities."""
    for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        if bundle := os.environ.get(name):
            with contextlib.suppress(OSError, ssl.SSLError):
                return ssl.create_default_context(cafile=bundle)
    import httpx

    return httpx.create_ssl_context()
