"""The environment variables of a child process, built from empty."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

PROXIES: Final = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
CERTIFICATES: Final = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
TRUST_FILES: Final = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
"""Those of them that name one file."""

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


def worker_environment(
    folder: Path,
    python: Path,
    *,
    proxies: bool = True,
    direct: str | None = None,
    trusted: Path | None = None,
    hash_seed: str = HASH_SEED,
) -> dict[str, str]:
    """Build the whole environment of a worker.

    Args:
        folder: Its private folder, with `home` and `tmp` in it.
        python: Its interpreter; programs of the same venv are found first.
        proxies: Whether the proxies of this machine can be reached.
        direct: A host that no proxy stands before.
        trusted: A file with everything that it is to trust; `None` leaves that to the caller's own variables.
        hash_seed: What hashes of texts, and so the order of sets, depend on.
    """
    network = network_environment()
    if trusted is not None:
        # all that there is in a folder, too
        network.pop("SSL_CERT_DIR", None)
        network |= dict.fromkeys(TRUST_FILES, str(trusted))
    if direct is not None:
        network |= _past_proxies(network, direct)
    return {
        **{name: value for name, value in network.items() if proxies or name in CERTIFICATES},
        "PATH": f"{python.parent}:{SYSTEM_PATH}",
        "HOME": str(folder / "home"),
        "TMPDIR": str(folder / "tmp"),
        "LANG": "C.UTF-8",
        "PYTHONHASHSEED": hash_seed,
        "PYTHONDONTWRITEBYTECODE": "1",
        # what has no network need not wait for one: this library fetches a list of prices when it is imported
        **({} if proxies else {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}),
    }


def _past_proxies(network: Mapping[str, str], host: str) -> dict[str, str]:
    """Both spellings of the list of hosts that need no proxy, with one host more; none where there is no proxy."""
    if not any(name.lower() in PROXIES and name.lower() != "no_proxy" for name in network):
        return {}
    # programs read one of the two, and not all the same
    listed = {name: network.get(name, "") for name in ("no_proxy", "NO_PROXY")}
    known = listed["no_proxy"] or listed["NO_PROXY"]
    return {name: ",".join(part for part in (value or known, host) if part) for name, value in listed.items()}


def _without_userinfo(url: str) -> str:
    # up to the last @, not as a parser would split it: a password with an unescaped slash must not stay either
    scheme = _SCHEME.match(url)
    return (scheme[0] if scheme else "") + url.rpartition("@")[2] if "@" in url else url
