"""The only way out of a sandboxed installation: a proxy in the caller's process, for the hosts it may ask.

Comes in: connections from the sandbox's own network, which speak HTTP to a proxy: `CONNECT`, or a request with a whole
address. Goes out: the same bytes to a host that is allowed, through the caller's own proxy where one is set. Refuses
every other host, and says so in `refused`. TLS passes through unread.
"""

from __future__ import annotations

import asyncio
import base64
import os
import re
import socket
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote, urlsplit

from runner.provision.hosts import Host, Hosts, host_of, is_public
from runner.provision.index import RELAY_HOST
from runner.provision.relay import CONNECT_S, MAX_HEAD_BYTES, Relay
from runner.sandbox.endpoints import Endpoint

PROXY: Final = Endpoint("127.0.0.1", 3128)
"""Where it is found in the sandbox's network."""

READ_BYTES: Final = 128 * 1024
REMEMBERED: Final = 32
"""Hosts that are remembered as refused or out of reach: a build can ask for as many as it likes."""

_STATUS: Final = re.compile(rb"HTTP/1\.[01] 2\d\d\b")
_DROPPED: Final = ("proxy-authorization", "proxy-connection", "connection")


class Proxy:
    """The proxy of one provisioning; each connection is given to it as a socket.

    Args:
        hosts: What may be asked.
        relay: Who answers for indexes with credentials, if somebody does.

    `refused` has the hosts that were asked for and are not allowed, `unreachable` by host why it did not answer.
    """

    def __init__(self, hosts: Hosts, relay: Relay | None) -> None:
        self._hosts = hosts
        self._relay = relay
        self.refused: dict[str, str] = {}
        self.unreachable: dict[str, str] = {}

    def environment(self) -> dict[str, str]:
        """Return the variables that send an installer's requests here, in the place of `PROXY_VARIABLES`."""
        here = f"http://{PROXY}"
        plain = f"http://{self._relay.user}@{PROXY}" if self._relay is not None else here
        return {"http_proxy": plain, "HTTP_PROXY": plain, "https_proxy": here, "HTTPS_PROXY": here}

    async def __call__(self, accepted: socket.socket) -> None:
        """Serve one connection to its end."""
        reader, writer = await asyncio.open_connection(sock=accepted, limit=MAX_HEAD_BYTES)
        try:
            await self._serve(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            # one of both ends went away, or does not speak HTTP
            pass
        finally:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        method, _, rest = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
        target = rest.rpartition(" ")[0]
        tunnel = method.upper() == "CONNECT"
        host = host_of(f"https://{target}" if tunnel else target)
        if host is None:
            await _say(writer, "400 Bad Request")
            return
        if not tunnel and host[0] == RELAY_HOST and self._relay is not None:
            # it knows its own by a word that came with the request
            await self._forward(reader, writer, head, ("127.0.0.1", self._relay.port))
            return
        if not self._hosts.allow(host):
            self._refuse(host, "it is neither an index nor a host of files that was named")
            await _say(writer, "403 Forbidden")
            return
        try:
            ours, theirs, via = await self._connect(host, tunnel=tunnel)
        except _RefusedError as error:
            self._refuse(host, str(error))
            await _say(writer, "403 Forbidden")
            return
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            _remember(self.unreachable, _shown(host), _reason(error))
            await _say(writer, "502 Bad Gateway")
            return
        try:
            if tunnel:
                await _say(writer, "200 Connection established", more=True)
            else:
                theirs.write(_request(head, target, via))
            await _both_ways((reader, writer), (ours, theirs))
        finally:
            theirs.transport.abort()

    async def _forward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes, place: Host
    ) -> None:
        ours, theirs = await asyncio.open_connection(*place)
        try:
            theirs.write(head)
            await _both_ways((reader, writer), (ours, theirs))
        finally:
            theirs.transport.abort()

    def _refuse(self, host: Host, reason: str) -> None:
        _remember(self.refused, _shown(host), reason)

    async def _connect(
        self, host: Host, *, tunnel: bool
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, Mapping[str, str] | None]:
        """Connect to a host, or to the caller's proxy for it; the last of the result is what that proxy wants to hear.

        Raises:
            _RefusedError: only the bundle names the host, and it is none of the internet.
            OSError: it does not answer, or the caller's proxy refuses.
        """
        own = host not in self._hosts.named
        url = _callers_proxy("https" if tunnel else "http", host)
        async with asyncio.timeout(CONNECT_S):
            if url is None:
                return *await _reach(host, public_only=own), None
            if own and not _may_be_public(host[0]):
                raise _RefusedError(_NOT_PUBLIC)
            parts = urlsplit(url)
            if parts.scheme.lower() != "http" or not parts.hostname:
                raise OSError(f"a proxy of the kind {parts.scheme}: cannot be used")
            said = {}
            if parts.username:
                login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
                said["Proxy-Authorization"] = f"Basic {base64.b64encode(login.encode()).decode()}"
            ours, theirs = await asyncio.open_connection(parts.hostname, parts.port or 80, limit=MAX_HEAD_BYTES)
            if tunnel:
                try:
                    await _open_tunnel(ours, theirs, host, said)
                except BaseException:
                    theirs.transport.abort()
                    raise
            return ours, theirs, said


class _RefusedError(Exception):
    """A host that may not be asked."""


_NOT_PUBLIC: Final = "only the bundle names it, and it is on this machine or in its network"


async def _reach(host: Host, *, public_only: bool) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to the first of a host's addresses that answers."""
    found = await asyncio.get_running_loop().getaddrinfo(*host, type=socket.SOCK_STREAM)
    addresses = list(dict.fromkeys(str(address[0]) for *_, address in found))
    if public_only and not all(map(is_public, addresses)):
        raise _RefusedError(_NOT_PUBLIC)
    failure: OSError = OSError("it has no address")
    for address in addresses:
        try:
            # an address that does not answer leaves time for the next one
            async with asyncio.timeout(CONNECT_S / (len(addresses) + 1)):
                return await asyncio.open_connection(address, host[1])
        except OSError as error:
            failure = error
    raise failure


def _may_be_public(name: str) -> bool:
    """Whether a host may be one of the internet, as far as its name tells."""
    try:
        return is_public(name)
    except ValueError:
        return name != "localhost" and not name.endswith(".localhost")


async def _open_tunnel(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: Host, said: Mapping[str, str]
) -> None:
    lines = [f"CONNECT {_shown(host)} HTTP/1.1", f"Host: {_shown(host)}", *(f"{k}: {v}" for k, v in said.items())]
    writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
    answer = await reader.readuntil(b"\r\n\r\n")
    if not _STATUS.match(answer):
        status = answer.partition(b"\r\n")[0].decode("latin-1").partition(" ")[2]
        raise OSError(f"the proxy on the way answers {status}")


def _request(head: bytes, target: str, via: Mapping[str, str] | None) -> bytes:
    """Return the head of a request as its server, or the caller's proxy, is to hear it: one for each connection."""
    first, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    method, version = first.partition(" ")[0], first.rpartition(" ")[2]
    parts = urlsplit(target)
    inner = parts._replace(scheme="", netloc="").geturl() or "/"
    where = target if via is not None else inner
    kept = [line for line in lines if line.partition(":")[0].strip().lower() not in _DROPPED]
    kept += [*(f"{name}: {value}" for name, value in (via or {}).items()), "Connection: close"]
    return "\r\n".join([f"{method} {where} {version}", *kept, "", ""]).encode("latin-1")


async def _both_ways(
    one: tuple[asyncio.StreamReader, asyncio.StreamWriter], other: tuple[asyncio.StreamReader, asyncio.StreamWriter]
) -> None:
    """Copy until both have said all; what breaks one way ends the other."""
    async with asyncio.TaskGroup() as group:
        group.create_task(_copy(one[0], other[1]))
        group.create_task(_copy(other[0], one[1]))


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    try:
        while data := await source.read(READ_BYTES):
            sink.write(data)
            await sink.drain()
        sink.write_eof()
    except OSError:
        # what is said is said; the other end sees a connection that broke
        sink.transport.abort()


async def _say(writer: asyncio.StreamWriter, status: str, *, more: bool = False) -> None:
    lines = [f"HTTP/1.1 {status}", *([] if more else ["Content-Length: 0", "Connection: close"])]
    writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("ascii"))
    await writer.drain()
    if not more:
        # closed by the other end, which has then read it
        writer.write_eof()


def _callers_proxy(scheme: str, host: Host) -> str | None:
    """Return the proxy that the caller's variables name for a host."""
    from urllib.request import getproxies, proxy_bypass

    proxies = getproxies()
    return None if proxy_bypass(_shown(host)) else proxies.get(scheme) or proxies.get("all")


def _remember(hosts: dict[str, str], host: str, reason: str) -> None:
    if len(hosts) < REMEMBERED:
        hosts[host] = reason


def _shown(host: Host) -> str:
    name = f"[{host[0]}]" if ":" in host[0] else host[0]
    return f"{name}:{host[1]}"


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {CONNECT_S:g} s"
    if isinstance(error, socket.gaierror):
        return error.strerror or "its address cannot be looked up"
    if isinstance(error, OSError):
        # not asyncio's own words, which leave the reason out
        return os.strerror(error.errno) if error.errno else str(error)
    return "the proxy on the way does not speak HTTP"
