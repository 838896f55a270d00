"""How much a worker's own folders hold on disk, measured from outside, and their removal whatever is in them.

Standard library only: the supervisor loads it. Folders of untrusted code may be nested without end, closed to their
owner, or changed meanwhile; nothing is followed out of them.
"""

from __future__ import annotations

import os
import stat
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    # not for real: the names alone take longer to load than all else here
    from collections.abc import Callable, Iterable, Iterator

if TYPE_CHECKING or __package__:
    from runner.sandbox.startup import suppress
else:
    # in the supervisor, which loads no package
    from startup import suppress

INTERVAL_S = 0.5
"""Between two looks at the file system; what a fast disk takes in that time is how far the limit can be exceeded."""

REST = 50
"""A measurement is followed by at least this many times as long without one, unless the disk fills."""

ENTRY_BYTES = 16_384
"""What a file or folder counts at least: file systems have about one inode for that much."""

STEP_BYTES = 64 * 1024**2
"""A file system that has lost less than this since the last measurement has not filled much."""

MAX_DEPTH = 200
"""Folders in each other that are measured; each holds a descriptor. No program needs as many."""


class TooDeepError(Exception):
    """Folders are nested deeper than can be measured."""


class DiskWatch:
    """Watches the folders of one tree, and says when they hold too much.

    Args:
        folders: Absolute paths on one file system.
        max_bytes: What they may hold together.
        processes: Returns the processes of the tree, for files that are open and have no name any more.
    """

    def __init__(self, folders: list[str], max_bytes: int, processes: Callable[[], Iterable[int]]) -> None:
        self._folders = folders
        self._max_bytes = max_bytes
        self._processes = processes
        self.exceeded = False
        """Whether they held more than they may, once."""

    def run(self, wake: int) -> None:
        """Watch until the limit is exceeded; then write a byte to `wake`. Runs in a thread, never returns before."""
        due, room, slack = 0.0, 0, 0
        while True:
            began, free = time.monotonic(), _room(self._folders[0])
            if began >= due or room - free > slack:
                found = self._used()
                if found > self._max_bytes:
                    self.exceeded = True
                    os.write(wake, b"\0")
                    return
                ended = time.monotonic()
                due = ended + max(INTERVAL_S, REST * (ended - began))
                room, slack = free, min(STEP_BYTES, (self._max_bytes - found) // 2)
                # not more than half of a processor, whatever there is to be counted
                time.sleep(max(0.0, ended - began - INTERVAL_S))
            time.sleep(INTERVAL_S)

    def _used(self) -> int:
        try:
            return used(self._folders) + held_open(self._processes(), self._folders[0])
        except TooDeepError:
            return self._max_bytes + 1


def used(folders: Iterable[str]) -> int:
    """Return the bytes on disk of all that is below folders; of a file with several names each has its part.

    Raises:
        TooDeepError: folders are nested deeper than can be measured.
    """
    return sum(_used_below(handle) for folder in folders for handle in _opened(folder, None))


def held_open(processes: Iterable[int], folder: str) -> int:
    """Return the bytes on disk of files without a name that processes hold open, on the file system of a folder."""
    device = _device(folder)
    found: dict[int, int] = {}
    for pid in processes:
        with suppress(OSError), os.scandir(f"/proc/{pid}/fd") as entries:
            for entry in entries:
                with suppress(OSError):
                    status = entry.stat()
                    if status.st_nlink == 0 and status.st_dev == device and stat.S_ISREG(status.st_mode):
                        found[status.st_ino] = max(status.st_blocks * 512, ENTRY_BYTES)
    return sum(found.values())


def remove(folder: str) -> None:
    """Remove a folder with all that is in it, as far as it can be."""
    for top in _opened(folder, None, 0o700):
        # what is nested too deep comes up, and is removed from there
        while _empty(top, top, 0):
            pass
    with suppress(OSError):
        os.rmdir(folder)  # noqa: PTH106 - no pathlib in a process that is to start fast


def _used_below(handle: int, depth: int = 0) -> int:
    if depth > MAX_DEPTH:
        raise TooDeepError
    total = 0
    with suppress(OSError), os.scandir(handle) as entries:
        for entry in entries:
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            if stat.S_ISDIR(status.st_mode):
                total += max(status.st_blocks * 512, ENTRY_BYTES)
                for inner in _opened(entry.name, handle):
                    total += _used_below(inner, depth + 1)
            else:
                total += max(status.st_blocks * 512, ENTRY_BYTES) // max(1, status.st_nlink)
    return total


def _empty(handle: int, top: int, depth: int) -> bool:
    """Remove what is in a folder; return whether something was moved to the top."""
    moved = False
    with suppress(OSError), os.scandir(handle) as entries:
        for entry in entries:
            with suppress(OSError):
                if not entry.is_dir(follow_symlinks=False):
                    os.unlink(entry.name, dir_fd=handle)
                    continue
                for inner in _opened(entry.name, handle, 0o700):
                    if depth < MAX_DEPTH:
                        moved |= _empty(inner, top, depth + 1)
                    else:
                        name = f".moved-{os.fstat(inner).st_ino}"
                        os.rename(entry.name, name, src_dir_fd=handle, dst_dir_fd=top)
                        moved = True
                if depth < MAX_DEPTH:
                    os.rmdir(entry.name, dir_fd=handle)
    return moved


def _opened(name: str, parent: int | None, rights: int = 0o500) -> Iterator[int]:
    """Open a folder while it is looked at, its owner's also where it is closed; nothing where it is none."""
    try:
        # by a handle from here on, so that no link can come to stand for it
        named = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    except OSError:
        return
    try:
        itself = f"/proc/self/fd/{named}"
        mode = os.fstat(named).st_mode
        if mode & rights != rights:
            with suppress(OSError):
                os.chmod(itself, stat.S_IMODE(mode) | rights)  # noqa: PTH101 - as above
        handle = os.open(itself, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return
    finally:
        os.close(named)
    try:
        yield handle
    finally:
        os.close(handle)


def _room(folder: str) -> int:
    """What the file system of a folder has free: bytes, and what its free inodes stand for."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return 0
    return found.f_bfree * found.f_frsize + found.f_ffree * ENTRY_BYTES


def _device(folder: str) -> int:
    try:
        return os.stat(folder).st_dev  # noqa: PTH116 - no pathlib in a process that is to start fast
    except OSError:
        return -1
