"""What this machine offers a sandbox, as a frozen value, so that everything compiled from it is pure."""

from __future__ import annotations

import ctypes
import functools
import os
import re
import shutil
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from runner.sandbox.view import SETTING_FILES

CAP_CHOWN: Final = 0
CAP_SETGID: Final = 6
CAP_SETUID: Final = 7
CAP_NET_BIND_SERVICE: Final = 10
CAP_NET_ADMIN: Final = 12
CAP_SYS_ADMIN: Final = 21
"""Numbers of `linux/capability.h`."""

LANDLOCK_CREATE_RULESET: Final = 444
LANDLOCK_VERSION: Final = 1
"""The call, equal on both machines, and the flag that asks it for the version of its interface only."""

ROOT_FOLDERS: Final = ("/bin", "/lib", "/lib32", "/lib64", "/libx32", "/sbin")
"""Links into /usr on most systems, folders of their own on others."""

PROGRAM_PATH: Final = "/usr/local/bin:/usr/bin:/bin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What a sandbox on this machine can be made of.

    Args:
        architecture: As `os.uname().machine` has it.
        uid: The caller's effective user.
        capabilities: The caller's effective capabilities, by number.
        uids: Users that exist in this user namespace, as ranges (first, count).
        landlock: Version of the kernel's Landlock interface; 0 where there is none.
        bubblewrap: The program `bwrap`; `None` where it is not installed.
        settings: Files of /etc that a sandbox gets a copy of; readable by everybody.
        root_folders: Folder of the root → what it links to; empty where it is a folder of its own.
    """

    architecture: str
    uid: int
    capabilities: frozenset[int]
    uids: tuple[tuple[int, int], ...]
    landlock: int
    bubblewrap: str | None
    settings: tuple[str, ...]
    root_folders: tuple[tuple[str, str], ...]

    @property
    def may_mount(self) -> bool:
        """Whether the caller can make a mount namespace without a user namespace."""
        return CAP_SYS_ADMIN in self.capabilities

    @property
    def may_make_networks(self) -> bool:
        """Whether the caller can make a network namespace, and set it up, without a user namespace."""
        return {CAP_SYS_ADMIN, CAP_NET_ADMIN, CAP_NET_BIND_SERVICE} <= self.capabilities

    @property
    def may_become(self) -> bool:
        """Whether the caller can take on another user, and give files to it."""
        return {CAP_CHOWN, CAP_SETUID, CAP_SETGID} <= self.capabilities

    def has_uid(self, uid: int) -> bool:
        """Whether a user of this number exists in this user namespace."""
        return any(first <= uid < first + count for first, count in self.uids)


def look() -> Machine:
    """Look at this machine; starts nothing and changes nothing."""
    return Machine(
        architecture=os.uname().machine,
        uid=os.geteuid(),
        capabilities=effective_capabilities(Path("/proc/self/status").read_text()),
        uids=tuple(id_ranges(Path("/proc/self/uid_map").read_text())),
        landlock=_landlock_version(),
        # not along the caller's own PATH, which could name anything
        bubblewrap=shutil.which("bwrap", path=PROGRAM_PATH),
        settings=tuple(path for path in SETTING_FILES if _is_public(Path(path))),
        root_folders=tuple(
            (folder, str(Path(folder).readlink()) if Path(folder).is_symlink() else "")
            for folder in ROOT_FOLDERS
            if Path(folder).exists()
        ),
    )


@functools.cache
def this_machine() -> Machine:
    """What `look` finds, looked at once per process."""
    return look()


def effective_capabilities(status: str) -> frozenset[int]:
    """Read the effective capabilities from the text of `/proc/PID/status`."""
    found = re.search(r"^CapEff:\s*([0-9a-f]+)$", status, re.MULTILINE)
    mask = int(found[1], 16) if found else 0
    return frozenset(number for number in range(64) if mask >> number & 1)


def id_ranges(text: str) -> Iterable[tuple[int, int]]:
    """Read the text of `/proc/PID/uid_map`: first id inside, first outside, count."""
    for line in text.splitlines():
        first, _, count = map(int, line.split())
        yield first, count


def _is_public(path: Path) -> bool:
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return stat.S_ISREG(mode) and bool(mode & stat.S_IROTH)


def _landlock_version() -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    version = int(libc.syscall(LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), LANDLOCK_VERSION))
    return max(0, version)
