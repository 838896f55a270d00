"""Who commands can run as, by the sandbox's own files."""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from runner.trials.inside.stream import RequestError

FIRST_USER: Final = 1000
LAST_USER: Final = 65_535
PASSWD, GROUP, HOMES = Path("/etc/passwd"), Path("/etc/group"), Path("/home")
SHELLS: Final = (Path("/bin/bash"), Path("/usr/bin/bash"), Path("/bin/sh"))
_NAME: Final = re.compile(r"[a-z_][a-z0-9_-]{0,31}", re.ASCII)


class Users:
    """Who commands can run as, by the sandbox's own files; one that is not in them is added.

    Args:
        several: Whether there is any other one than root.
    """

    def __init__(self, several: bool) -> None:
        self._several = several
        self._lock = threading.Lock()

    def find(self, wanted: str | int | None) -> tuple[int, int, str, str]:
        """Return number, group, name and home of a user: `None` is root, a text of digits a number."""
        text = "0" if wanted is None else str(wanted)
        with self._lock:
            known = list(_table(PASSWD, 7))
            for line in known:
                if text in (line[0], line[2]):
                    return self._allowed(int(line[2]), int(line[3]), line[0], line[5] or "/")
            if text.isascii() and text.isdigit() and len(text) < 6:
                return self._allowed(int(text), int(text), text, "/")
            if _NAME.fullmatch(text) is None:
                raise RequestError("invalid", f"{text[:100]!r} is no name of a user.")
            self._allowed(FIRST_USER, FIRST_USER, text, "/")
            return self._add(text, {int(line[2]) for line in known})

    def groups(self, name: str) -> list[int]:
        """List the groups that a user is in beside its own."""
        return [int(line[2]) for line in _table(GROUP, 4) if name in line[3].split(",")]

    def _allowed(self, uid: int, gid: int, name: str, home: str) -> tuple[int, int, str, str]:
        if (uid or gid) and not self._several:
            raise RequestError(
                "refused",
                f"there is no other user than root in this sandbox, so nothing can be done as {name!r}. "
                "Have the runner started by root, or name no user.",
            )
        if max(uid, gid) > LAST_USER:
            raise RequestError("refused", f"user {name!r} has a number beyond {LAST_USER}, which there is not here.")
        return uid, gid, name, home

    def _add(self, name: str, taken: set[int]) -> tuple[int, int, str, str]:
        uid = next(number for number in range(FIRST_USER, LAST_USER - 1) if number not in taken)
        home = HOMES / name
        with PASSWD.open("a") as file:
            file.write(f"{name}:x:{uid}:{uid}::{home}:{shell()}\n")
        with GROUP.open("a") as file:
            file.write(f"{name}:x:{uid}:\n")
        home.mkdir(parents=True, exist_ok=True)
        os.chown(home, uid, uid)
        return uid, uid, name, str(home)


def _table(path: Path, width: int) -> Iterator[list[str]]:
    """Read a table of users or groups; lines that are none are passed over."""
    with contextlib.suppress(OSError), path.open(errors="replace") as file:
        for line in file:
            parts = line.rstrip("\n").split(":")
            numbers = parts[2:4] if width == 7 else parts[2:3]
            if len(parts) == width and parts[0] and all(part.isascii() and part.isdigit() for part in numbers):
                yield parts


def shell() -> str:
    """Return the shell that runs commands: bash where it is there."""
    return str(next((path for path in SHELLS if path.exists()), SHELLS[-1]))
