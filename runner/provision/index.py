"""The package index requirements come from, and the one place that knows its credentials.

Comes in: an address, possibly with a user name and password in it. Goes out: the full address for the installer's
private environment, one without credentials for keys, manifests and messages, and a filter for installer output.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote, unquote, urlsplit

from runner.errors import UsageError

DEFAULT_INDEX_URL: Final = "https://pypi.org/simple"
INDEX_VARIABLE: Final = "BENCHMAX_INDEX_URL"
_USER_INFO: Final = re.compile(r"(?<=://)[^/@\s\"'<>]+@")


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
            raise UsageError(f"the package index address cannot be read: {error}.") from None
        named = bool(parts.hostname) if parts.scheme in ("http", "https") else parts.scheme == "file"
        if not named:
            shown = _USER_INFO.sub("****@", url)
            raise UsageError(
                f"{shown!r} is not the address of a package index.",
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


def redact_addresses(text: str) -> str:
    """Remove user names and passwords from every address in a text."""
    return _USER_INFO.sub("****@", text)
