"""Where a worker may connect, and what stands for those places in a network of its own.

Comes in: hosts and ports. Goes out: the addresses on which the worker finds them, and the text of its /etc/hosts.
Refuses: hosts that programs read differently, and addresses that are nobody's. Pure.
"""

from __future__ import annotations

import ipaddress
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from runner.sandbox.view import HOST_NAME

LOCALHOST: Final = "localhost"
_HOST: Final = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63})*\.?")
_NUMERIC: Final = re.compile(r"(?:\d+|0[xX][0-9a-fA-F]*)\.?")
"""How the last part of a host reads that programs take for an address, however it is spelled."""
_HOST_PORT: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:/@\s]+)):(\d{1,5})", re.ASCII)
_FIRST_NAME: Final = ipaddress.IPv4Address("127.64.0.1")
"""Loopback addresses from here on stand for names: far from those that programs use themselves."""


@dataclass(frozen=True, slots=True, order=True)
class Endpoint:
    """A host and a port that connections lead to.

    Args:
        host: A name in lower case, or an address in its shortest form, without brackets.
        port: From 1 to 65,535.

    Raises:
        ValueError: no program could connect to that, or different programs would connect to different places.
    """

    host: str
    port: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "host", _read_host(self.host))
        if not 0 < self.port < 1 << 16:
            raise ValueError(f"{self.port} is not a port from 1 to 65535")

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def literal(self) -> bool:
        """Whether the host is an address, not a name."""
        return ":" in self.host or _is_numeric(self.host)


@dataclass(frozen=True, slots=True)
class Listener:
    """Where in the worker's network connections to an endpoint arrive."""

    endpoint: Endpoint
    address: str


def read_endpoint(text: str) -> Endpoint:
    """Read `HOST:PORT`, where an IPv6 address stands in brackets.

    Raises:
        ValueError: it is not of that form.
    """
    found = _HOST_PORT.fullmatch(text)
    if found is None:
        raise ValueError("it is not of the form HOST:PORT or [IPv6]:PORT")
    return Endpoint(found[1] or found[2], int(found[3]))


def listeners(endpoints: Iterable[Endpoint]) -> tuple[Listener, ...]:
    """Say where each endpoint is found: an address as itself, `localhost` at 127.0.0.1, each other name at its own.

    Where `localhost` and its address are both meant, whichever comes first stands for both.
    """
    endpoints = tuple(endpoints)
    address = _addresses(endpoints)
    found: dict[tuple[str, int], Listener] = {}
    for endpoint in endpoints:
        place = (address[endpoint.host], endpoint.port)
        found.setdefault(place, Listener(endpoint, place[0]))
    return tuple(found.values())


def added_addresses(endpoints: Iterable[Endpoint]) -> tuple[str, ...]:
    """List the addresses that the worker's loopback device has to be given: those that are not loopback anyway."""
    hosts = dict.fromkeys(endpoint.host for endpoint in endpoints if endpoint.literal)
    return tuple(host for host in hosts if not ipaddress.ip_address(host).is_loopback)


def hosts_file(endpoints: Iterable[Endpoint]) -> str:
    """The text of an /etc/hosts with the names of endpoints, `localhost` and the sandbox's own, and no others."""
    names = _addresses(tuple(endpoints))
    local = [LOCALHOST] if HOST_NAME in names else [LOCALHOST, HOST_NAME]
    lines = [f"127.0.0.1 {' '.join(local)}", f"::1 {LOCALHOST}"]
    lines += [f"{address} {name}" for name, address in names.items() if name not in (address, LOCALHOST)]
    return "".join(f"{line}\n" for line in lines)


def _addresses(endpoints: Sequence[Endpoint]) -> dict[str, str]:
    taken = {endpoint.host for endpoint in endpoints if endpoint.literal}
    free = _loopback(taken)
    found: dict[str, str] = {}
    for endpoint in endpoints:
        if endpoint.host in found:
            continue
        if endpoint.literal:
            found[endpoint.host] = endpoint.host
        else:
            found[endpoint.host] = "127.0.0.1" if endpoint.host == LOCALHOST else next(free)
    return found


def _loopback(taken: Iterable[str]) -> Iterator[str]:
    for number in itertools.count(int(_FIRST_NAME)):
        address = str(ipaddress.IPv4Address(number))
        if address not in taken:
            yield address


def _is_numeric(host: str) -> bool:
    return _NUMERIC.fullmatch(host.removesuffix(".").rpartition(".")[2]) is not None


def _read_host(host: str) -> str:
    if ":" not in host and not _is_numeric(host):
        if _HOST.fullmatch(host) is None:
            raise ValueError("its host is no name of letters, digits, hyphens and single dots (xn--… for any other)")
        return host.lower()
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        raise ValueError("its host is an address in a form that not every program reads the same") from None
    if address.is_multicast or address.is_unspecified or str(address) == "255.255.255.255":
        raise ValueError("its host is an address that stands for several machines or for none")
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            raise ValueError("its host is an IPv4 address in the form of an IPv6 one; write it as IPv4")
        if address.is_link_local or address.scope_id is not None:
            raise ValueError("its host is an address of one link, which leads nowhere from elsewhere")
    return str(address)
