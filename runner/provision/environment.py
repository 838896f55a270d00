"""The environment installers run in: built from empty, so that nothing of the caller's shell changes a result.

Only proxies and certificate bundles pass, because without them some machines reach no index at all.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

PROXY_VARIABLES: Final = frozenset(
    {
        *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
        *("http_proxy", "https_proxy", "all_proxy", "no_proxy"),
    }
)
PASSED: Final = frozenset(
    {
        *PROXY_VARIABLES,
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
    }
)
# compilers and git live here; the caller's own PATH could name anything
SYSTEM_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def installer_environment(
    scratch: Path, extra: Mapping[str, str] | None = None, proxies: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Build the environment of one installer process.

    Args:
        scratch: Private folder of this build; home and temporary folder are made in it.
        extra: Variables of the installer itself.
        proxies: In the place of all others about proxies, the caller's and the installer's.

    Returns:
        The whole environment.

    Raises:
        OSError: the folders cannot be made.
    """
    home = scratch / "home"
    temporary = scratch / "tmp"
    for folder in (home, temporary):
        folder.mkdir(parents=True, exist_ok=True)
    environment = {name: value for name, value in os.environ.items() if name in PASSED}
    environment.update(
        PATH=SYSTEM_PATH,
        HOME=str(home),
        TMPDIR=str(temporary),
        LANG="C.UTF-8",
        LC_ALL="C.UTF-8",
        NO_COLOR="1",
    )
    environment.update(extra or {})
    if proxies is not None:
        environment = {name: value for name, value in environment.items() if name not in PROXY_VARIABLES}
        environment.update(proxies)
    return environment


def probe_environment() -> dict[str, str]:
    """Build the environment an interpreter is tried out in."""
    return {"PATH": SYSTEM_PATH, "HOME": "/", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}
