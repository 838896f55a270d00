"""What bounds a supervised tree as a whole: its control groups, made before it and removed after it.

Standard library only, and loaded before every command, so `os` alone. Comes in: groups as `cgroups` compiles them.
Goes out: the names of the limits that were reached.
"""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    # not for real: the names alone take longer to load than all else here
    from collections.abc import Callable, Iterable
    from typing import Any

ATTEMPTS = 20
"""How often a group is tried to be removed, since the kernel may need a moment to see that it is empty; and how often
a tree is looked through for processes that were made while it was."""


class Bounds:
    """The control groups of one tree.

    Args:
        groups: Each with its `parent`, `settings` and `events`.
    """

    def __init__(self, groups: list[dict[str, Any]]) -> None:
        # the number says whose it was when nobody removed it; it may be there twice, with several process namespaces
        name = f"benchmax-worker-{os.getpid()}-{os.urandom(4).hex()}"
        self._groups = [(f"{group['parent']}/{name}", group) for group in groups]

    def make(self) -> None:
        """Make the groups.

        Raises:
            OSError: a group or a limit of it could not be made; `enter` may not be called.
        """
        for folder, group in self._groups:
            os.mkdir(folder)  # noqa: PTH102 - no pathlib in a process that is to start fast
            for file, value, needed in group["settings"]:
                if needed or os.path.exists(f"{folder}/{file}"):  # noqa: PTH110 - as above
                    _write(f"{folder}/{file}", value)

    def enter(self) -> None:
        """Move the calling process into those that it has to be in from the beginning.

        Raises:
            OSError: it cannot be moved.
        """
        for folder, group in self._groups:
            if not group["late"]:
                _write(f"{folder}/cgroup.procs", "0")

    @property
    def late(self) -> bool:
        """Whether `follow` has something to do."""
        return any(group["late"] for _, group in self._groups)

    def follow(self, processes: Callable[[], Iterable[int]]) -> None:
        """Move a tree that runs into the others, until none of it is outside.

        Args:
            processes: Returns the processes of the tree.
        """
        for folder, group in self._groups:
            if group["late"]:
                for _ in range(ATTEMPTS):
                    outside = set(processes()) - _members(folder)
                    if not outside:
                        break
                    for pid in outside:
                        # one that has ended meanwhile, or the group with all of the tree
                        try:
                            _write(f"{folder}/cgroup.procs", str(pid))
                        except OSError:
                            continue

    def reached(self) -> list[str]:
        """Return the names of the limits that the tree has met."""
        return [
            limit
            for folder, group in self._groups
            for limit, file, word in group["events"]
            if _number(f"{folder}/{file}", word)
        ]

    def remove(self) -> None:
        """Remove the groups; one that still has a process is left behind."""
        for folder, _ in self._groups:
            for _ in range(ATTEMPTS):
                try:
                    os.rmdir(folder)  # noqa: PTH106 - as above
                except FileNotFoundError:
                    break
                except OSError:
                    time.sleep(0.005)
                else:
                    break


def _write(path: str, text: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(handle, text.encode())
    except OSError as error:
        raise OSError(error.errno, os.strerror(error.errno or 0), path) from error
    finally:
        os.close(handle)


def _members(folder: str) -> set[int]:
    try:
        with open(f"{folder}/cgroup.procs") as file:  # noqa: PTH123 - as above
            return set(map(int, file.read().split()))
    except OSError:
        return set()


def _number(path: str, word: str) -> int:
    try:
        with open(path) as file:  # noqa: PTH123 - as above
            lines = file.read().split("\n")
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{word} ")), 0)
