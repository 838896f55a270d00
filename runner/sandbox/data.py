"""The caller's data for one sandboxed worker, an overlay or a copy: it may change its own, and never the caller's.

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
import stat
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from runner.errors import UsageError
from runner.limits import MIB, Limits
from runner.sandbox import disk
from runner.sandbox.machine import Machine
from runner.sandbox.overlay import Overlay
from runner.sandbox.plan import Plan
from runner.sandbox.probe import PROBE_S, launch

FICLONE: Final = 0x40049409
"""Request number of `ioctl` that lets a file share another one's blocks until either is written."""

LARGE_BYTES: Final = 1024 * 1024
"""Files from this size on are not opened for a trial."""


def can_overlay(source: Path, machine: Machine) -> bool:
    """Find out whether workers can have a folder as an overlay; reads all of its names, and starts a trial run.

    That takes an ordinary caller whose own all files are, links that stay inside, no other file system inside, and a
    kernel that lets one of the files be opened for writing through an overlay.

    Args:
        source: A folder of the caller, absolute and without symbolic links.
        machine: This machine.

    Raises:
        OSError: there is no room for a trial.
    """
    folder = os.path.realpath(tempfile.gettempdir())
    if machine.uid == 0 or not source.is_dir() or Path(folder).is_relative_to(source):
        return False
    try:
        file = _to_be_tried(source, machine.uid)
    except (OSError, _NotPlainError):
        return False
    with tempfile.TemporaryDirectory(prefix="benchmax-overlay-", dir=folder) as name:
        overlay = make_overlay(source, Path(name))
        tried = f"{overlay.target}/{file}"
        plan = Plan(steps=(overlay.step(), {"do": "drop-capabilities"}), argv=("/bin/sh", "-c", ': >> "$0"', tried))
        try:
            done = launch(plan, cwd="/", env={}, timeout_s=PROBE_S)
        except subprocess.TimeoutExpired:
            return False
        finally:
            # the kernel leaves a folder there that is closed to its owner
            disk.remove(overlay.written)
    return done.returncode == 0


def make_overlay(source: Path, folder: Path) -> Overlay:
    """Make the folders of an overlay: `written`, which the worker must not see, and `data/overlay/NAME`.

    Raises:
        OSError: they cannot be made.
    """
    target = folder / "data" / "overlay" / (source.name or "data")
    for path in (target, folder / "written" / "upper", folder / "written" / "work"):
        path.mkdir(parents=True)
    return Overlay(lower=str(source), written=str(folder / "written"), target=str(target))


class _NotPlainError(Exception):
    """Something that an overlay would not show, or not let be changed."""


def _to_be_tried(source: Path, uid: int) -> str:
    """Return the relative path of a file to open for writing: the smallest, or a new one where all are large.

    Raises:
        _NotPlainError: there is something that an overlay would show in another way than a copy.
        OSError: something cannot be read.
    """
    # opening one copies it whole
    found = (LARGE_BYTES, f"{source}/.benchmax-trial")
    device = source.stat().st_dev
    open_ends = [source]
    while open_ends:
        with os.scandir(open_ends.pop()) as entries:
            for entry in entries:
                status = entry.stat(follow_symlinks=False)
                if status.st_uid != uid or status.st_dev != device:
                    raise _NotPlainError
                if stat.S_ISDIR(status.st_mode):
                    open_ends.append(Path(entry.path))
                elif stat.S_ISLNK(status.st_mode):
                    target = os.readlink(entry.path)  # noqa: PTH115 - there may be very many
                    if target.startswith("/") or not Path(os.path.realpath(entry.path)).is_relative_to(source):
                        raise _NotPlainError
                elif stat.S_ISREG(status.st_mode):
                    if not status.st_mode & stat.S_IWUSR:
                        # a copy could be written
                        raise _NotPlainError
                    found = min(found, (status.st_size, entry.path))
    return str(Path(found[1]).relative_to(source))


def copy_data(
    source: Path,
    target: Path,
    *,
    staging: Path,
    uid: int | None = None,
    limits: Limits | None = None,
) -> None:
    """Copy a folder or file; links are followed, but not back up, and what is neither file nor folder is left out.

    Args:
        source: A folder or file of the caller.
        target: The copy to make, in a folder that is made for it; its name is what the worker knows it by.
        staging: A folder on the same file system that the worker cannot reach; it is left out of the copy, too.
        uid: Who the copy belongs to; `None` leaves it to the caller.
        limits: `data_bytes` is what all files together have at most, `data_files` how many files and folders it is;
            the default ones when `None`.

    Raises:
        UsageError: there is more than that; what was copied is removed.
        OSError: something cannot be read or written.
    """
    made = Path(tempfile.mkdtemp(dir=staging))
    try:
        if uid is not None:
            os.chown(made, uid, uid)
        copy = _Copy(source, uid, staging, limits or Limits())
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
        limits: How much is copied at most.
    """

    def __init__(self, folder: Path, staging: Path, uid: int | None, limits: Limits) -> None:
        self._folder = folder
        self._staging = staging
        self._uid = uid
        self._limits = limits
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
        state = _state(source, self._staging, self._limits.data_files)
        known = self._made.get(source)
        if known is not None and known[0] == state:
            return known[1]
        target = self._folder / str(self._count) / (source.name or "data")
        self._count += 1
        copy_data(source, target, staging=self._staging, uid=self._uid, limits=self._limits)
        self._made[source] = (state, target)
        return target


def _state(source: Path, staging: Path, max_files: int) -> int:
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
        if len(found) > max_files:
            break
    return hash(tuple(sorted(found)))


class _Copy:
    def __init__(self, source: Path, uid: int | None, staging: Path, limits: Limits) -> None:
        self._source = source
        self._uid = uid
        self._skipped = {_identity(staging.stat())}
        """Folders that are not copied: the staging folder, and those that are being copied further up."""
        self._bytes = limits.data_bytes
        self._files = limits.data_files
        self._limit = f"{limits.data_bytes / MIB:.6g} MiB or {limits.data_files} files"

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
                hint="Name a folder that holds the data alone (--data), raise limits.data_bytes and limits.data_files, "
                "or use --sandbox off.",
            )


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _copy_file(source: Path, target: Path) -> None:
    with source.open("rb") as old, target.open("xb") as new:
        with contextlib.suppress(OSError):
            fcntl.ioctl(new.fileno(), FICLONE, old.fileno())
            return
        shutil.copyfileobj(old, new, 1024 * 1024)
