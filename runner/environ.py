"""The environment variables of a child process, built from empty."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

PROXIES: Final = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
CERTIFICATES: Final = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
SYSTEM_PATH: Final = "/usr/local/bin:/usr/bin:/bin"
HASH_SEED: Final = "0"
"""Fixed and reported, so that set and dict order that depends on it repeats."""

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def network_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Take over what the network of this machine needs: proxies, without user names and passwords, and CA bundles."""
    source = os.environ if environ is None else environ
    result = {name: source[name] for name in CERTIFICATES if source.get(name)}
    for lower in PROXIES:
        for name in (lower, lower.upper()):
            value = source.get(name)
            if value:
                result[name] = value if lower == "no_proxy" else _without_userinfo(value)
    return result


def worker_environment(folder: Path, python: Path, *, proxies: bool = True) -> dict[str, str]:
    """Build the whole environment of a worker.

    Args:
        folder: Its private folder, with `home` and `tmp` in it.
        python: Its interpreter; programs of the same venv are found first.
        proxies: Whether the proxies of this machine can be reached.
    """
    network = network_environment()
    return {
        **{name: value for name, value in network.items() if proxies or name in CERTIFICATES},
        "PATH": f"{python.parent}:{SYSTEM_PATH}",
        "HOME": str(folder / "home"),
        "TMPDIR": str(folder / "tmp"),
        "LANG": "C.UTF-8",
        "PYTHONHASHSEED": HASH_SEED,
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def _without_userinfo(url: str) -> str:
    # up to the last @, not as a parser would split it: a password with an unescaped slash must not stay either
    scheme = _SCHEME.match(url)
    return (scheme[0] if scheme else "") + url.rpartition("@")[2] if "@" in url else url
