"""The environment variables of a child process, built from empty."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit, urlunsplit

PROXIES: Final = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
CERTIFICATES: Final = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
SYSTEM_PATH: Final = "/usr/local/bin:/usr/bin:/bin"
HASH_SEED: Final = "0"
"""Fixed and reported, so that set and dict order that depends on it repeats."""


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


def worker_environment(folder: Path, python: Path) -> dict[str, str]:
    """Build the whole environment of a worker.

    Args:
        folder: Its private folder, with `home` and `tmp` in it.
        python: Its interpreter; programs of the same venv are found first.
    """
    return {
        **network_environment(),
        "PATH": f"{python.parent}:{SYSTEM_PATH}",
        "HOME": str(folder / "home"),
        "TMPDIR": str(folder / "tmp"),
        "LANG": "C.UTF-8",
        "PYTHONHASHSEED": HASH_SEED,
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def _without_userinfo(url: str) -> str:
    parts = urlsplit(url if "//" in url else f"//{url}")
    if "@" not in parts.netloc:
        return url
    text = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    return text if "//" in url else text.removeprefix("//")
