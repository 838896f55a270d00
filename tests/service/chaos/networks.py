"""Two network namespaces with a cable between them, as two machines have it."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HERE: Final = "10.213.0.1"
THERE: Final = "10.213.0.2"
CLIENTS: Final = "10.213.0.0/30"


@dataclass(frozen=True)
class Networks:
    """See the module.

    Args:
        here, there: The namespaces' names; their addresses are `HERE` and `THERE`.
    """

    here: str
    there: str

    def cut(self, seconds: float) -> None:
        """Have the cable pulled out for a while; returns when it is in again."""
        _ip("-n", self.here, "link", "set", "cable", "down")
        try:
            time.sleep(seconds)
        finally:
            _ip("-n", self.here, "link", "set", "cable", "up")


def blocker() -> str:
    """Say why there can be none on this machine; empty when there can."""
    if os.geteuid() != 0:
        return "root, which makes network namespaces"
    if shutil.which("ip") is None:
        return "the program ip"
    try:
        with networks():
            return ""
    except subprocess.CalledProcessError as error:
        return f"the right to make network namespaces ({error.stderr.decode().strip()})"


@contextlib.contextmanager
def networks() -> Iterator[Networks]:
    """Have two."""
    tail = secrets.token_hex(3)
    made = Networks(f"bm-here-{tail}", f"bm-there-{tail}")
    with contextlib.ExitStack() as stack:
        for name in (made.here, made.there):
            _ip("netns", "add", name)
            stack.callback(_ip, "netns", "del", name)
            _ip("-n", name, "link", "set", "lo", "up")
        _ip("-n", made.here, "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", made.there)
        for name, address in ((made.here, HERE), (made.there, THERE)):
            _ip("-n", name, "address", "add", f"{address}/30", "dev", "cable")
            _ip("-n", name, "link", "set", "cable", "up")
        yield made


def inside(network: str, *command: str | Path) -> list[str]:
    """Return the command that runs another one in a namespace."""
    return ["ip", "netns", "exec", network, *(str(part) for part in command)]


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
