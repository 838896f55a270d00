"""Folders as archives on their way into a sandbox and out of it.

What comes out may have been made up by what runs inside. So of an archive only folders and files are unpacked, below
one folder and as files of whoever unpacks: no links (one could lead out), no devices, no owners, no more than so many,
and of no more bytes than so many, whatever their sizes are said to be.
"""

from __future__ import annotations

import tarfile
import tempfile
from pathlib import Path, PurePosixPath
from typing import IO, Final, cast

MAX_MEMBERS: Final = 200_000
"""Files and folders of one archive; a thousand of them take a tenth of a second."""

MAX_BYTES: Final = 2 * 1024 * 1024 * 1024
"""Written for one archive: files with holes, and those with several names, need more room than the archive has."""

PIECE_BYTES: Final = 64 * 1024

MAX_HEADER_BYTES: Final = 1024 * 1024
"""Read at once: a long name, or other things said of a member, which are held in memory."""

SPOOL_BYTES: Final = 4 * 1024 * 1024
"""Of an archive in memory; a larger one is written to a temporary file."""


class ArchiveError(Exception):
    """Raised when what came out of a sandbox is no archive that could be unpacked."""


def packed(source: Path) -> IO[bytes]:
    """Return a folder's content as an open archive; who owns the files there plays no part.

    Args:
        source: The folder. Links in it stay links.

    Raises:
        OSError: it cannot be read.
    """
    if not source.is_dir():
        raise NotADirectoryError(f"{source} is no folder")
    file = tempfile.SpooledTemporaryFile(SPOOL_BYTES)  # noqa: SIM115 - the caller closes it
    try:
        with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
            archive.add(source, arcname=".", filter=_ownerless)
        file.seek(0)
    except BaseException:
        file.close()
        raise
    return file


def _ownerless(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def unpack(file: IO[bytes], target: Path) -> int:
    """Unpack an archive below a folder, over what is there; return how many links and special files were left out.

    Args:
        file: The archive, read from its beginning.
        target: The folder, made if it is not there.

    Raises:
        ArchiveError: it is no archive, one of its names leads out of the folder, or it holds too much.
        OSError: something cannot be written.
    """
    target.mkdir(parents=True, exist_ok=True)
    left_out, room = 0, MAX_BYTES
    try:
        with tarfile.open(fileobj=cast("IO[bytes]", _Sparing(file)), mode="r:") as archive:
            for count, member in enumerate(archive):
                if count >= MAX_MEMBERS:
                    raise ArchiveError(f"it holds more than {MAX_MEMBERS} files and folders")
                path = target.joinpath(*_parts(member.name))
                if member.isdir():
                    path.mkdir(parents=True, exist_ok=True)
                elif member.isfile() or member.islnk():
                    room -= _write(archive, member, path, room)
                else:
                    left_out += 1
    except (tarfile.TarError, KeyError, ValueError, RecursionError) as error:
        raise ArchiveError(f"it cannot be read: {error}") from error
    return left_out


def _parts(name: str) -> tuple[str, ...]:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise ArchiveError(f"the name {name!r:.200} leads out of the folder")
    return path.parts


def _write(archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path, room: int) -> int:
    """Write a file; return its size."""
    # a second name of a file comes as a link to the first: its content is there
    content = archive.extractfile(member)
    if content is None:
        raise ArchiveError(f"{member.name!r:.200} has no content")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    written = 0
    with content, path.open("xb") as file:
        while piece := content.read(PIECE_BYTES):
            written += len(piece)
            if written > room:
                raise ArchiveError(f"it holds more than {MAX_BYTES} bytes")
            file.write(piece)
    path.chmod(0o600 | member.mode & 0o755)
    return written


class _Sparing:
    """An open archive of which nobody reads much at once."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.seek, self.tell = file.seek, file.tell

    def read(self, size: int = -1) -> bytes:
        """Read; refuses what would fill the memory."""
        if not 0 <= size <= MAX_HEADER_BYTES:
            raise ArchiveError(f"more than {MAX_HEADER_BYTES} bytes are said of one of its members")
        return self._file.read(size)
