"""The package indexes requirements come from, and the one place that knows their credentials.

Comes in: addresses, possibly with a user name and password in them. Goes out: what an installer is told, addresses
without credentials for keys, manifests, locks and messages, and a filter for installer output. Installers are told no
credentials at all: where an index has some, or is meant for a few packages only, they ask a relay in this process.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote, unquote, urlsplit

from packaging.utils import canonicalize_name

from runner.errors import UsageError

DEFAULT_INDEX_URL: Final = "https://pypi.org/simple"
INDEX_VARIABLE: Final = "BENCHMAX_INDEX_URL"
RELAY_HOST: Final = "packages.benchmax.invalid"
"""A name that no server can have; installers reach it through the relay alone. Always the same, since installers
keep what they loaded by address."""

_USER_INFO: Final = re.compile(r"(?<=://)[^/@\s\"'<>]+@")
_RELAYED_PAGE: Final = re.compile(rf"https?://{re.escape(RELAY_HOST)}(?::\d+)?/[0-9a-f]+/simple(?:/([A-Za-z0-9._-]+))?")
_RELAYED_FILE: Final = re.compile(
    rf"https?://{re.escape(RELAY_HOST)}(?::\d+)?/[0-9a-f]+/files/(https?)/([^/\s]+)/(\d*)-(?=/)"
)


@dataclass(frozen=True, slots=True)
class Index:
    """A package index.

    Args:
        url: Its address as given, credentials included; never shown.
        public_url: The same without credentials.
        host: Host name and port, for messages.
    """

    url: str = field(repr=False)
    public_url: str
    host: str

    @classmethod
    def from_url(cls, url: str | None) -> Index:
        """Check an index address.

        Args:
            url: `http`, `https` or `file` address; `None` takes the environment variable `BENCHMAX_INDEX_URL`, and
                where that is not set the Python Package Index.

        Raises:
            UsageError: it is not such an address.
        """
        url = (url or os.environ.get(INDEX_VARIABLE) or DEFAULT_INDEX_URL).strip()
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise UsageError(f"the package index address cannot be read: {redact_addresses(str(error))}.") from None
        named = bool(parts.hostname) if parts.scheme in ("http", "https") else parts.scheme == "file"
        if not named:
            raise UsageError(
                f"{redact_addresses(url)!r} is not the address of a package index.",
                hint="It looks like https://host/simple; file:///folder/simple is possible too.",
            )
        host = parts.hostname or "this machine"
        if ":" in host:
            host = f"[{host}]"
        netloc = host if port is None else f"{host}:{port}"
        public = parts._replace(netloc=netloc if parts.hostname else "").geturl()
        return cls(url, public, netloc)

    @property
    def is_plain_http(self) -> bool:
        """Whether packages travel without encryption, which pip wants confirmed for each host."""
        return self.url.lower().startswith("http://")

    @property
    def credentials(self) -> tuple[str, str] | None:
        """User name and password, either possibly empty; `None` where the address has neither."""
        parts = urlsplit(self.url)
        if not parts.username and not parts.password:
            return None
        return unquote(parts.username or ""), unquote(parts.password or "")

    @property
    def origin(self) -> tuple[str, str]:
        """Scheme, and host with port."""
        return urlsplit(self.url).scheme.lower(), self.host

    def redact(self, text: str) -> str:
        """Remove credentials from a text: those of this index wherever they stand, and any in an address."""
        parts = urlsplit(self.url)
        for secret in (parts.password, parts.username):
            if not secret:
                continue
            # a password is shown as given, decoded, or encoded again, depending on who writes it
            for form in {secret, unquote(secret), quote(unquote(secret), safe="")}:
                if len(form) > 3:
                    text = text.replace(form, "****")
        return redact_addresses(text)


@dataclass(frozen=True, slots=True)
class Indexes:
    """Where packages come from: one index for everything, and others for the packages named, and for no more.

    Args:
        main: The index for every package that is not named.
        scoped: Canonical name of a package to the only index it may come from.
    """

    main: Index
    scoped: Mapping[str, Index] = field(default_factory=dict)

    @classmethod
    def of(cls, index_url: str | None, extra: Iterable[tuple[Iterable[str], str]] = ()) -> Indexes:
        """Check the addresses of all indexes.

        Args:
            index_url: As `Index.from_url` takes it.
            extra: Names of packages and the address of their index.

        Raises:
            UsageError: an address is not that of an index, or a package is named for two of them.
        """
        main = Index.from_url(index_url)
        scoped: dict[str, Index] = {}
        for names, url in extra:
            index = Index.from_url(url)
            for name in names:
                known = scoped.setdefault(canonicalize_name(name), index)
                if known.url != index.url:
                    raise UsageError(
                        f"package {name!r} is named for two extra indexes, {known.host} and {index.host}.",
                        hint="A package comes from one index; leave one of them out.",
                    )
        if scoped and any(index.origin[0] == "file" for index in (main, *scoped.values())):
            raise UsageError(
                "an index on this machine (file:) cannot be combined with extra indexes.",
                hint="Give its folder of wheels as find-links instead.",
            )
        return cls(main, dict(sorted(scoped.items())))

    @property
    def all(self) -> tuple[Index, ...]:
        """Each index once, the main one first."""
        return tuple(dict.fromkeys((self.main, *self.scoped.values())))

    @property
    def host(self) -> str:
        """Host name and port of the main index, for messages."""
        return self.main.host

    @property
    def public_url(self) -> str:
        """Address of the main index without credentials."""
        return self.main.public_url

    @property
    def public_scoped(self) -> dict[str, str]:
        """Addresses of the others without credentials, by package."""
        return {name: index.public_url for name, index in self.scoped.items()}

    def of_package(self, name: str) -> Index:
        """Return the one index a package may come from."""
        return self.scoped.get(canonicalize_name(name), self.main)

    def host_of(self, name: str) -> str:
        """Host name and port of the index a package comes from, for messages."""
        return self.of_package(name).host

    # -- what installers are told ------------------------------------------------------------------------------

    @property
    def needs_relay(self) -> bool:
        """Whether installers have to ask a relay instead of the index."""
        return bool(self.scoped) or self.main.credentials is not None

    @property
    def relay_root(self) -> str:
        """Address of the relay, a name of its own for each set of indexes."""
        public = json.dumps([self.public_url, self.public_scoped], sort_keys=True)
        return f"http://{RELAY_HOST}/{hashlib.sha256(public.encode()).hexdigest()[:16]}"

    @property
    def installer_url(self) -> str:
        """Address of the index as an installer is told it; never one with credentials."""
        return f"{self.relay_root}/simple" if self.needs_relay else self.main.url

    @property
    def plain_http_host(self) -> str | None:
        """The host of `installer_url` where packages travel without encryption, which pip wants confirmed."""
        if self.needs_relay:
            return RELAY_HOST
        return self.main.host if self.main.is_plain_http else None

    def guardian(self, url: str) -> Index | None:
        """Return the index whose credentials a file's address needs, `None` for a file that is free."""
        parts = urlsplit(url)
        for index in self.all:
            if index.credentials is not None and index.origin == (parts.scheme.lower(), _bare_netloc(parts.netloc)):
                return index
        return None

    def inward(self, url: str) -> str:
        """Return a file's address as an installer has to ask for it."""
        if not self.needs_relay or self.guardian(url) is None:
            return url
        parts = urlsplit(url)
        rest = parts._replace(scheme="", netloc="").geturl()
        # the port apart, since installers quote a colon in a path, each in its own way
        host = quote((parts.hostname or "").lower(), safe="")
        return f"{self.relay_root}/files/{parts.scheme.lower()}/{host}/{parts.port or ''}-{rest or '/'}"

    def outward(self, text: str) -> str:
        """Replace addresses of the relay in a text by the ones they stand for."""
        if RELAY_HOST not in text:
            return text

        def page(match: re.Match[str]) -> str:
            name = match[1]
            return f"{self.of_package(name).public_url.rstrip('/')}/{name}" if name else self.public_url.rstrip("/")

        text = _RELAYED_FILE.sub(lambda match: file_root(match[1], match[2], match[3]), text)
        return _RELAYED_PAGE.sub(page, text).replace(RELAY_HOST, self.host)

    def redact(self, text: str) -> str:
        """Remove all credentials, and the relay, from a text."""
        text = self.outward(text)
        for index in self.all:
            text = index.redact(text)
        return text


def redact_addresses(text: str) -> str:
    """Remove user names and passwords from every address in a text."""
    return _USER_INFO.sub("****@", text)


def file_root(scheme: str, host: str, port: str) -> str:
    """Return the origin that parts of a relayed file's address stand for."""
    name = unquote(host)
    name = f"[{name}]" if ":" in name else name
    return f"{scheme}://{name}:{port}" if port else f"{scheme}://{name}"


def _bare_netloc(netloc: str) -> str:
    return netloc.rpartition("@")[2].lower()
