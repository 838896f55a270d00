"""Keeps a SQLite database on the host where it is open: its write-ahead log is shared memory of one kernel.

Refused are file systems of the network, and a file that another host has open. The latter is known by a lock file
beside the database: each process that has the database open shares a lock on it, and it holds the name of the kernel's
boot. Whoever comes from another boot has to get the lock alone first, so a host that has gone leaves nothing behind
that had to be cleared away, and containers of one machine are one host.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import time
from pathlib import Path
from typing import Final

from runner.errors import DatabaseError

NETWORK_FILE_SYSTEMS: Final = frozenset(
    {
        "9p", "afs", "beegfs", "ceph", "cifs", "fuse.ceph-fuse", "fuse.gcsfuse", "fuse.glusterfs", "fuse.rclone",
        "fuse.s3fs", "fuse.sshfs", "gfs2", "glusterfs", "gpfs", "lustre", "nfs", "nfs4", "ocfs2", "orangefs", "smb3",
        "smbfs", "virtiofs",
    }
)  # fmt: skip
"""As the kernel names them: locks and shared memory there are not those of one host, whatever they claim."""

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_MOUNTS: Final = Path("/proc/self/mountinfo")
_TRIES: Final = 100
_PAUSE_S: Final = 0.01
"""While another process of this host is just taking the lock over."""


class HostLock:
    """Holds a database file for this host until it is closed.

    Args:
        database: The database's file; it need not be there yet, its folder does.
        host: Which host this is; by default the kernel's boot.

    Raises:
        DatabaseError: another host has the database open, or the lock file cannot be written.
    """

    def __init__(self, database: Path, *, host: str | None = None) -> None:
        self.path = database.with_name(f"{database.name}.host")
        host = host if host is not None else _BOOT_ID.read_text().strip()
        try:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise DatabaseError(
                f"The database {database} cannot be opened: {self.path} cannot be written: {error.strerror}."
            ) from None
        try:
            self._take(database, host)
        except BaseException:
            self.close()
            raise

    def _take(self, database: Path, host: str) -> None:
        for _ in range(_TRIES):
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.ftruncate(self._file, 0)
                os.pwrite(self._file, host.encode(), 0)
                # not atomic: in between another process may take it alone, and then the name is that one's
                fcntl.flock(self._file, fcntl.LOCK_SH)
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(self._file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                holder = os.pread(self._file, 200, 0).decode("utf-8", "replace")
                if holder == host:
                    return
                if holder:
                    raise DatabaseError(
                        f"The database {database} cannot be opened: another host has it open.",
                        hint="SQLite serves one host. Use PostgreSQL for several.",
                    )
            time.sleep(_PAUSE_S)
        raise DatabaseError(f"The database {database} cannot be opened: {self.path} stays locked by another process.")

    def close(self) -> None:
        """Give the lock back; twice is harmless."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def refuse_network_file_system(database: Path, *, mounts: str | None = None) -> None:
    """Refuse a database file that lies on a file system which several hosts may have mounted.

    Args:
        database: The database's file.
        mounts: The kernel's table of mounts, in the form of `/proc/self/mountinfo`; by default this process's.

    Raises:
        DatabaseError: it does.
    """
    kind = file_system_of(database, mounts if mounts is not None else _MOUNTS.read_text("utf-8", "replace"))
    if kind in NETWORK_FILE_SYSTEMS:
        raise DatabaseError(
            f"The database {database} cannot be used: it lies on a network file system ({kind}).",
            hint="Put it on a local disk, or use PostgreSQL.",
        )


def file_system_of(path: Path, mounts: str) -> str:
    """Return the kind of file system that a path lies on; empty when the table does not have it."""
    resolved = path.resolve()
    best, kind = -1, ""
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields, rest = before.split(" "), after.split(" ")
        if len(fields) < 5:
            continue
        point = Path(re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), fields[4]))
        # of two mounts at the same place the later one is seen
        if resolved.is_relative_to(point) and len(point.parts) >= best:
            best, kind = len(point.parts), rest[0]
    return kind
