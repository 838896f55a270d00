"""A shared hold on something in the cache: while it lasts, nobody removes it. It ends with its process at the latest.

Holds are advisory locks of the system on small files, so a holder that is killed leaves nothing behind that somebody
would have to judge. The file's time of modification is when the thing was last used.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path


class Lease:
    """A hold on a file, shared with other holders or exclusive. Make one with `shared` or `exclusive`.

    It is given back by `release`, when the object goes, and when the process ends. Children do not inherit it.
    """

    def __init__(self, descriptor: int, *, is_use: bool) -> None:
        self._descriptor = descriptor
        self._is_use = is_use

    @classmethod
    def shared(cls, path: Path, *, create: bool = False) -> Lease | None:
        """Hold a file beside other holders, noting that it is used now; `None` while somebody holds it alone.

        Args:
            path: The file.
            create: Make the file if it is missing.

        Raises:
            OSError: the file cannot be opened or made.
        """
        return cls._take(path, fcntl.LOCK_SH, create=create)

    @classmethod
    def exclusive(cls, path: Path, *, create: bool = False) -> Lease | None:
        """Hold a file alone; `None` if anybody else holds it.

        Args:
            path: The file.
            create: Make the file if it is missing.

        Raises:
            OSError: the file cannot be opened or made.
        """
        return cls._take(path, fcntl.LOCK_EX, create=create)

    @classmethod
    def _take(cls, path: Path, how: int, *, create: bool) -> Lease | None:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o644)
        except PermissionError:
            # a cache that somebody else keeps for us can be used all the same
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, how | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except BaseException:
            os.close(descriptor)
            raise
        lease = cls(descriptor, is_use=how == fcntl.LOCK_SH)
        lease.stamp()
        return lease

    @property
    def held(self) -> bool:
        """Whether it has not been released."""
        return self._descriptor >= 0

    def stamp(self) -> None:
        """Note that what is held is used now; somebody who holds it alone looks at it or removes it."""
        if self.held and self._is_use:
            # not ours to write, as above: its age is then told wrongly, and nothing else
            with contextlib.suppress(PermissionError):
                os.utime(self._descriptor)

    def release(self) -> None:
        """Give the hold back, noting the time. Safe to call twice."""
        if self.held:
            try:
                self.stamp()
            finally:
                os.close(self._descriptor)
                self._descriptor = -1

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __del__(self) -> None:
        if self.held:
            os.close(self._descriptor)
            self._descriptor = -1
