"""A copy of the caller's data for one sandboxed worker: it may change its own, and never the caller's.

Comes in: a folder or file of the caller, and where its copy is to be. Goes out: the same files, owned by whoever the
worker is. Where the file system can share blocks nothing is really copied. Refuses to go on beyond a size or a number
of files.
The copy is made where the worker cannot reach it, and then moved: names in a folder that untrusted code can change may
come to lead elsewhere between two steps.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

from runner.errors import UsageError
from runner.limits import SANDBOX_DATA_BYTES, SANDBOX_DATA_FILES

FICLONE: Final = 0x40049409
"""Request number of `ioctl` that lets a file share another one's blocks until either is written."""


def copy_data(
    source: Path,
    target: Path,
    *,
    staging: Path,
    uid: int | None = None,
    max_bytes: int = SANDBOX_DATA_BYTES,
    max_files: int = SANDBOX_DATA_FILES,
) -> None:
    """Copy a folder or file; links are followed, but not back up, and what is neither file nor folder is left out.

    Args:
        source: A folder or file of the caller.
        target: The copy to make, in a folder that is made for it; its name is what the worker knows it by.
        staging: A folder on the same file system that the worker cannot reach; it is left out of the copy, too.
        uid: Who the copy belongs to; `None` leaves it to the caller.
        max_bytes: All files together at most.
        max_files: Files and folders at most.

    Raises:
        UsageError: there is more than that; what was copied is removed.
        OSError: something cannot be read or written.
    """
    made = Path(tempfile.mkdtemp(dir=staging))
    try:
        if uid is not None:
            os.chown(made, uid, uid)
        copy = _Copy(source, uid, staging, max_bytes, max_files)
        (copy.folder if source.is_dir() else copy.file)(source, made / target.name)
        # follows no link at its end, and goes over nothing but an empty folder
        made.rename(target.parent)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise


class DataCopies:
    """The copies of one worker: one of each folder, and another when the folder has changed since.

    Args:
        folder: Where the worker finds them.
        staging: A folder on the same file system that the worker cannot reach.
        uid: Who they belong to; `None` leaves them to the caller.
    """

    def __init__(self, folder: Path, staging: Path, uid: int | None) -> None:
        self._folder = folder
        self._staging = staging
        self._uid = uid
        self._made: dict[Path, tuple[int, Path]] = {}
        self._count = 0

    def of(self, source: Path) -> Path:
        """Return where the worker finds a folder or file of the caller; what is neither it finds nowhere.

        Raises:
            UsageError: there is too much in it.
            OSError: it cannot be read or copied.
        """
        if not (source.is_dir() or source.is_file()):
            return source
        state = _state(source, self._staging)
        known = self._made.get(source)
        if known is not None and known[0] == state:
            return known[1]
        target = self._folder / str(self._count) / (source.name or "data")
        self._count += 1
        copy_data(source, target, staging=self._staging, uid=self._uid)
        self._made[source] = (state, target)
        return target


def _state(source: Path, staging: Path) -> int:
    """Sum up names, sizes and times of what is in a folder, as far as it would be copied."""
    status = source.stat()
    found = [("", "", status.st_size, status.st_mtime_ns, status.st_ino)] if source.is_file() else []
    for folder, inner, files in os.walk(source):
        # the worker's own folders may lie in there, and change all the time
        inner[:] = [name for name in inner if Path(folder, name) != staging.parent]
        for name in files:
            try:
                status = Path(folder, name).stat()
            except OSError:
                continue
            found.append((folder, name, status.st_size, status.st_mtime_ns, status.st_ino))
        if len(found) > SANDBOX_DATA_FILES:
            break
    return hash(tuple(sorted(found)))


class _Copy:
    def __init__(self, source: Path, uid: int | None, staging: Path, max_bytes: int, max_files: int) -> None:
        self._source = source
        self._uid = uid
        self._skipped = {_identity(staging.stat())}
        """Folders that are not copied: the staging folder, and those that are being copied further up."""
        self._bytes = max_bytes
        self._files = max_files
        self._limit = f"{max_bytes / 1024**2:g} MiB or {max_files} files"

    def folder(self, source: Path, target: Path) -> None:
        identity = _identity(source.stat())
        if identity in self._skipped:
            return
        self._skipped.add(identity)
        self._count(0)
        target.mkdir(mode=0o700)
        with os.scandir(source) as entries:
            for entry in entries:
                inner = target / entry.name
                if entry.is_dir():
                    self.folder(Path(entry.path), inner)
                elif entry.is_file():
                    self.file(Path(entry.path), inner)
        self._give(target)
        self._skipped.remove(identity)

    def file(self, source: Path, target: Path) -> None:
        self._count(source.stat().st_size)
        _copy_file(source, target)
        self._give(target)

    def _give(self, path: Path) -> None:
        if self._uid is not None:
            os.chown(path, self._uid, self._uid)

    def _count(self, size: int) -> None:
        self._bytes -= size
        self._files -= 1
        if self._bytes < 0 or self._files < 0:
            raise UsageError(
                f"cannot copy {self._source} for a sandboxed worker: it holds more than {self._limit}.",
                hint="Name a folder that holds the data alone (--data), or use --sandbox off.",
            )


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _copy_file(source: Path, target: Path) -> None:
    with source.open("rb") as old, target.open("xb") as new:
        with contextlib.suppress(OSError):
            fcntl.ioctl(new.fileno(), FICLONE, old.fileno())
            return
        shutil.copyfileobj(old, new, 1024 * 1024)
