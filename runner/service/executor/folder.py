"""The private folder of one executor: everything it and its workers write lies there, and goes with it.

An executor that is killed cannot clean up. A lock that the kernel drops with its process says whose folder is still in
use; the next executor that starts removes the others.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

PREFIX: Final = "benchmax-executor-"
_LOCK: Final = ".lock"
_YOUNG_S: Final = 60.0
"""Between making a folder and its lock lies a moment."""


@contextlib.contextmanager
def work_folder(parent: Path) -> Iterator[Path]:
    """Have a folder for the length of the context, and have temporary files made there.

    Args:
        parent: Where executors of this machine keep their folders; made if it is not there.

    Raises:
        OSError: it cannot be written.
    """
    # what else is in the service's folder is nobody's business, whoever makes it first
    parent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    parent.mkdir(exist_ok=True)
    remove_abandoned(parent)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=os.path.realpath(parent)))
    before = tempfile.tempdir
    try:
        with _locked(folder / _LOCK):
            # what runs workers makes their folders where temporary files are made
            tempfile.tempdir = str(folder)
            yield folder
    finally:
        tempfile.tempdir = before
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    # not inherited by children, which may outlive this process by a moment
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def remove_abandoned(parent: Path) -> list[Path]:
    """Remove the folders of executors that are no more; return them.

    Args:
        parent: Where they keep their folders.
    """
    removed = []
    for folder in parent.glob(f"{PREFIX}*"):
        try:
            descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            # being made, being removed, or left in between: a lock tells them apart
            if _is_young(folder):
                continue
            shutil.rmtree(folder, ignore_errors=True)
            removed.append(folder)
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
            removed.append(folder)
        except BlockingIOError:
            continue
        finally:
            os.close(descriptor)
    return removed


def _is_young(folder: Path) -> bool:
    try:
        return time.time() - folder.stat().st_mtime < _YOUNG_S
    except FileNotFoundError:
        return True
