"""Base URLs, read in the one way that every client reads them the same, or not at all.

Two URLs are compared by scheme, host, port and whole path segments. What clients and servers are known to read
differently is refused instead of normalised: the worker's client would have the last word on what was meant.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from urllib.parse import unquote, urlsplit

PORTS: Final = {"http": 80, "https": 443}
_PLAIN: Final = re.compile(r"[!-\[\]-~]+")
"""Printable ASCII without the backslash: the rest is dropped, encoded or taken for a slash, as a client likes."""
_PATH: Final = re.compile(r"[ -\[\]-~]*")
"""The same of a path that was decoded, where a space may stand."""
_HOST: Final = re.compile(r"[A-Za-z0-9._-]+")
_DOTS: Final = re.compile(r"\.{1,2}(?:;.*)?")
_MAX_DECODINGS: Final = 3
"""How often a path may have been percent-encoded; what is still encoded after that is nobody's API."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where requests go: scheme and host in lower case, the port spelled out, the path without a slash at its end."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def origin(self) -> str:
        """Scheme, host and port as text, the scheme's own port left out."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}" if self.port == PORTS[self.scheme] else f"{self.scheme}://{host}:{self.port}"

    def same_origin(self, other: Address) -> bool:
        """Whether scheme, host and port are the same."""
        return (self.scheme, self.host, self.port) == (other.scheme, other.host, other.port)

    def covers(self, other: Address) -> bool:
        """Whether the other is at or below this one: the same origin, and all of this path's segments first."""
        return self.same_origin(other) and f"{other.path}/".startswith(f"{self.path}/")


@lru_cache(maxsize=256)
def read_address(url: str) -> Address:
    """Read a base URL.

    Raises:
        ValueError: it is no http or https URL, or one that is read differently by different programs; the text says
            what is wrong with it and quotes nothing of it.
    """
    if _PLAIN.fullmatch(url) is None:
        raise ValueError("it has white space, a backslash or characters outside of ASCII")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ValueError("its host or port cannot be read") from error
    scheme = parts.scheme.lower()
    if scheme not in PORTS or not parts.hostname:
        raise ValueError("it is not a base URL such as https://judge.example/v1")
    if "@" in parts.netloc:
        raise ValueError("it names a user before the host")
    if port == 0:
        raise ValueError("its host or port cannot be read")
    return Address(scheme, _host(parts.netloc, parts.hostname), port or PORTS[scheme], _path(parts.path))


def address_or_none(url: str) -> Address | None:
    """Read a base URL; `None` for what is refused."""
    try:
        return read_address(url)
    except ValueError:
        return None


def _host(netloc: str, name: str) -> str:
    if netloc.startswith("["):
        try:
            return str(ipaddress.IPv6Address(name))
        except ValueError as error:
            raise ValueError("its host or port cannot be read") from error
    if _HOST.fullmatch(name) is None:
        raise ValueError("its host is not written in letters, digits, dots and hyphens (xn--… for any other)")
    return name.lower()


def _path(path: str) -> str:
    decoded = path
    for _ in range(_MAX_DECODINGS):
        decoded = unquote(decoded)
    # after this comparison somebody else may still decode it, climb out of it, or find more segments in it
    if _PATH.fullmatch(decoded) is None or decoded.count("/") != path.count("/") or unquote(decoded) != decoded:
        raise ValueError("its path hides a slash, a backslash or another special character")
    if any(_DOTS.fullmatch(segment) for segment in decoded.split("/")):
        raise ValueError("its path has segments of dots")
    return path.rstrip("/")
