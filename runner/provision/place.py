"""Where a program of a provisioning works: folders, and what it may do there.

Comes in: files for the program. Goes out: what it wrote, read in a way that no link leads elsewhere. Where code of
packages may run, nothing that it could have prepared is written through or followed.
"""

from __future__ import annotations

import os
import secrets
import stat
from dataclasses import dataclass
from pathlib import Path

from runner.provision.cache import Cache
from runner.sandbox.policy import SandboxPolicy


class MisplacedFileError(Exception):
    """Raised when a program left something else than a file of bounded size where a file was expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One place.

    Args:
        work: The program's working folder, which it may write.
        given: Where this process puts files for it, and nobody else.
        downloads: Where an installer keeps what it loads.
        policy: How it is confined.
        builds: Whether code of packages may run here.
    """

    work: Path
    given: Path
    downloads: Path
    policy: SandboxPolicy
    builds: bool = False

    def give(self, name: str, text: str, cache: Cache) -> Path:
        """Write a file for programs to read.

        Raises:
            CacheError: it cannot be written.
        """
        file = self.given / name
        with cache.boundary():
            file.write_text(text, encoding="utf-8")
            # whatever the caller's umask is: it may be read by another user
            file.chmod(0o644)
        return file

    def output(self, name: str, cache: Cache) -> Path:
        """Return a path at which there is nothing yet, in a new folder that a program may write.

        Raises:
            CacheError: the folder cannot be made.
        """
        folder = self.work / f"out-{secrets.token_hex(4)}"
        with cache.boundary():
            # refuses whatever is there
            folder.mkdir(mode=0o755)
        return folder / name


def open_inside(file: Path, folder: Path) -> int:
    """Open a file that a program left in its folder, whose whole tree is gone; return a descriptor.

    Raises:
        MisplacedFileError: it is not there, no regular file, or reached through a link.
    """
    try:
        if os.path.realpath(file.parent) != str(file.parent) or not file.is_relative_to(folder):
            raise MisplacedFileError(f"{file.name} is reached through a link")
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise MisplacedFileError(f"{file.name} cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise MisplacedFileError(f"{file.name} is no regular file")
    return descriptor


def read_inside(file: Path, folder: Path, max_bytes: int) -> bytes:
    """Read a file that a program left in its folder, whose whole tree is gone.

    Raises:
        MisplacedFileError: it is not there, no regular file, reached through a link, or too large.
    """
    with os.fdopen(open_inside(file, folder), "rb") as stream:
        content = stream.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise MisplacedFileError(f"{file.name} is larger than {max_bytes} bytes")
    return content
