"""A root of its own that a sandboxed process may change: folders on the caller's disk, and the system below a layer.

Comes in: an empty folder of the caller's. Goes out: what the launcher mounts in it, and what is made in it before.
What is written lands in the folder. The system's own files are shown as nobody's, so that none of them can be changed
in place; the folders of the system that programs are installed into are made anew in the layer, so that files can be
added to them, put into the place of others, and removed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from runner.sandbox.closed import without_inner
from runner.sandbox.view import SYSTEM

PROGRAM: Final = "/.benchmax/program"
"""Where the program that runs inside is shown, read-only."""

CAPABILITIES: Final = (
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_SETGID",
    "CAP_SETUID",
    "CAP_NET_BIND_SERVICE",
)
"""What root has inside, over its own files, processes and users, as in a container; nothing of the machine's."""

FOLDERS: Final[Mapping[str, int]] = {
    ".benchmax": 0o755,
    "dev": 0o755,
    "etc": 0o755,
    "home": 0o755,
    "media": 0o755,
    "mnt": 0o755,
    "opt": 0o755,
    "proc": 0o555,
    # an interpreter may be shown below it
    "root": 0o711,
    "run": 0o755,
    "run/lock": 0o1777,
    "srv": 0o755,
    "sys": 0o755,
    "sys/devices": 0o755,
    "tmp": 0o1777,
    "usr": 0o755,
    "var": 0o755,
    "var/cache": 0o755,
    "var/lib": 0o755,
    "var/local": 0o755,
    "var/log": 0o755,
    "var/mail": 0o755,
    "var/opt": 0o755,
    "var/spool": 0o755,
    "var/tmp": 0o1777,
}
"""Folders that every system has, with their modes; empty."""

DEEP: Final = ("", "local", "local/lib", "local/share")
"""Folders of the system, whose own folders are made anew in the layer."""

ROOT_ONLY: Final = 1
"""Number of users where there is no other one than root."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateRoot:
    """One root.

    Args:
        folder: Absolute, without symbolic links; holds `root`, `layer`, `work` and `terminals`.
        program: The file that is shown at `PROGRAM`.
        users: How many users there are inside, root included.
    """

    folder: str
    program: bytes
    users: int = ROOT_ONLY

    @property
    def root(self) -> str:
        """What becomes the root, outside."""
        return f"{self.folder}/root"

    @property
    def layer(self) -> str:
        """Where changes of the system land."""
        return f"{self.folder}/layer"

    @property
    def terminals(self) -> str:
        """Where its own pseudo terminals are mounted."""
        return f"{self.folder}/terminals"

    def step(self) -> Mapping[str, object]:
        """What the launcher mounts, in a user namespace of its own."""
        return {
            "do": "layer",
            "lower": SYSTEM,
            "upper": self.layer,
            "work": f"{self.folder}/work",
            "target": f"{self.root}{SYSTEM}",
            "terminals": self.terminals,
        }


def make_root(folder: Path, shown: Sequence[str] = (), system: Path = Path(SYSTEM)) -> None:
    """Make the folders of a root.

    Args:
        folder: An empty folder of the caller's.
        shown: Absolute paths that are shown in it beside the system.
        system: The system that is to be shown in it.

    Raises:
        OSError: they cannot be made.
    """
    for name in ("root", "layer", "work", "terminals"):
        _make(folder / name, 0o755)
    for name, mode in FOLDERS.items():
        _make(folder / "root" / name, mode)
    for path in without_inner([SYSTEM, *shown]):
        # those on the way to it, which bubblewrap would close to all but root
        for parent in reversed(Path(path).relative_to("/").parents):
            _make(folder / "root" / parent, 0o755)
    for name in _made_anew(system):
        _make(folder / "layer" / name, 0o755)


def _make(path: Path, mode: int) -> None:
    if not path.is_dir():
        path.mkdir()
        # whatever this process takes away of modes
        path.chmod(mode)


def _made_anew(system: Path) -> Iterator[str]:
    for outer in DEEP:
        if not (system / outer).is_dir() or (system / outer).is_symlink():
            continue
        yield outer
        with os.scandir(system / outer) as entries:
            yield from sorted(os.path.join(outer, entry.name) for entry in entries if _is_open_folder(entry))  # noqa: PTH118


def _is_open_folder(entry: os.DirEntry[str]) -> bool:
    # what is closed to others stays so
    return entry.is_dir(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_mode & 0o005 == 0o005
