"""Files of a sandbox, one or a folder of them, to and from the stream."""

from __future__ import annotations

import contextlib
import os
import stat
import tarfile
import threading
from pathlib import Path
from queue import Queue
from typing import Any, Final, cast

from runner.trials.inside.fields import kind_of, path_of, user_of
from runner.trials.inside.stream import PIECE, RequestError, Stream
from runner.trials.inside.users import Users

HELD: Final = 16
"""Data frames of one upload that wait to be written; then nothing more is read from the stream."""


class Incoming:
    """What comes for one upload, as a file that is read."""

    def __init__(self) -> None:
        self._pieces: Queue[bytes] = Queue(HELD)
        self._rest = b""
        self._ended = False

    def push(self, data: bytes) -> None:
        """Take in a piece; an empty one is the last. Waits while there are many."""
        self._pieces.put(data)

    def read(self, size: int) -> bytes:
        """Return `size` bytes, or as many as still come."""
        found = bytearray()
        while len(found) < size:
            if not self._rest:
                if self._ended:
                    break
                self._rest = self._pieces.get()
                self._ended = not self._rest
                continue
            piece, self._rest = self._rest[: size - len(found)], self._rest[size - len(found) :]
            found += piece
        return bytes(found)

    def skip(self) -> None:
        """Read all that still comes."""
        while not self._ended:
            self._rest = self._pieces.get()
            self._ended = not self._rest


class Outgoing:
    """What is sent for one download, as a file that is written."""

    def __init__(self, stream: Stream, channel: int) -> None:
        self._stream = stream
        self._channel = channel
        self._held = bytearray()
        self.total = 0

    def write(self, data: bytes) -> int:
        """Send data, in pieces that are worth a frame."""
        self._held += data
        while len(self._held) >= PIECE:
            self._flush()
        return len(data)

    def close(self) -> None:
        """Send the rest."""
        while self._held:
            self._flush()

    def _flush(self) -> None:
        piece = bytes(self._held[:PIECE])
        del self._held[:PIECE]
        self.total += len(piece)
        self._stream.data(self._channel, piece)


class Padded:
    """A file that has as many bytes as was said, though it may have become shorter meanwhile."""

    def __init__(self, handle: int, size: int) -> None:
        self._handle = handle
        self._left = size

    def read(self, size: int) -> bytes:
        """Return the next bytes."""
        size = min(size, self._left)
        data = os.read(self._handle, size) or bytes(size)
        self._left -= len(data)
        return data


def put(request: dict[str, Any], source: Incoming, users: Users) -> dict[str, object]:
    """Write a file, or unpack an archive below a folder; answers when all has come, also where it cannot be written."""
    try:
        _put(request, source, users)
    finally:
        source.skip()
    return {"ok": True}


def _put(request: dict[str, Any], source: Incoming, users: Users) -> None:
    path, mode = path_of(request), request.get("mode")
    if mode is not None and (not isinstance(mode, int) or not 0 <= mode <= 0o7777):
        raise RequestError("invalid", "mode is none of a file.")
    uid, gid = users.find(user_of(request.get("owner")))[:2]
    if kind_of(request) == "tar":
        _make_folders(path, uid, gid)
        _unpack(source, path, uid, gid)
    else:
        _make_folders(str(Path(path).parent), uid, gid)
        _write(path, source, 0o644 if mode is None else mode, uid, gid)


def get(request: dict[str, Any], target: Outgoing) -> dict[str, object]:
    """Send a file, or a folder as an archive."""
    path = path_of(request)
    if kind_of(request) == "tar":
        if not Path(path).is_dir():
            raise RequestError("invalid" if os.path.lexists(path) else "missing", f"{path!r} is not a folder.")
        with tarfile.open(fileobj=cast("Any", target), mode="w|", format=tarfile.PAX_FORMAT) as archive:
            _pack(archive, path, "")
    else:
        # not to wait for whoever opens the other end of a named pipe
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise RequestError("invalid", f"{path!r} is not a file.")
            while data := os.read(handle, PIECE):
                target.write(data)
        finally:
            os.close(handle)
    target.close()
    return {"ok": True, "bytes": target.total}


def look(request: dict[str, Any]) -> dict[str, object]:
    """Say what is at a path."""
    try:
        mode = Path(path_of(request)).stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return {"type": None}
    return {"type": "file" if stat.S_ISREG(mode) else "folder" if stat.S_ISDIR(mode) else "other"}


def _make_folders(path: str, uid: int, gid: int) -> None:
    folder = Path(path)
    if not folder.is_dir():
        _make_folders(str(folder.parent), uid, gid)
        folder.mkdir(0o755)
        os.chown(folder, uid, gid)


def _write(path: str, source: Any, mode: int, uid: int, gid: int) -> None:
    """Write a file beside its place and then put it there, so that nothing is written through a link."""
    beside = f"{Path(path).parent!s}/.benchmax-{os.getpid()}-{threading.get_native_id()}"
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        while data := source.read(PIECE):
            view = memoryview(data)
            while view:
                view = view[os.write(handle, view) :]
        os.fchown(handle, uid, gid)
        os.fchmod(handle, mode)
        Path(beside).rename(path)
    except BaseException:
        Path(beside).unlink()
        raise
    finally:
        os.close(handle)


def _unpack(source: Incoming, folder: str, uid: int, gid: int) -> None:
    folders = []
    try:
        with tarfile.open(fileobj=cast("Any", source), mode="r|") as archive:
            for member in archive:
                path = _below(folder, member.name)
                if member.isdir():
                    _make_folders(path, uid, gid)
                    folders.append((path, member.mode & 0o7777))
                    continue
                _make_folders(str(Path(path).parent), uid, gid)
                if member.isreg():
                    _write(path, archive.extractfile(member), member.mode & 0o7777, uid, gid)
                elif member.issym() or member.islnk():
                    Path(path).unlink(missing_ok=True)
                    if member.issym():
                        Path(path).symlink_to(member.linkname)
                        os.chown(path, uid, gid, follow_symlinks=False)
                    else:
                        os.link(_below(folder, member.linkname), path, follow_symlinks=False)
                else:
                    raise RequestError("invalid", f"{member.name!r} in the archive is no file, folder or link.")
    except tarfile.TarError as error:
        raise RequestError("invalid", f"the archive cannot be read: {error}.") from None
    # last, since one may be closed
    for path, mode in reversed(folders):
        Path(path).chmod(mode)


def _below(folder: str, name: str) -> str:
    if ".." in name.split("/") or "\0" in name:
        raise RequestError("invalid", f"{name!r} in the archive leads out of its folder.")
    return os.path.normpath(Path(folder, name.lstrip("/")))


def _pack(archive: tarfile.TarFile, folder: str, prefix: str) -> None:
    with os.scandir(folder) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        # what goes away or is changed meanwhile is left out, or is as it was
        with contextlib.suppress(FileNotFoundError):
            _pack_entry(archive, entry, prefix + entry.name)


def _pack_entry(archive: tarfile.TarFile, entry: os.DirEntry[str], name: str) -> None:
    mode = entry.stat(follow_symlinks=False).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)):
        return
    info = archive.gettarinfo(entry.path, name)
    info.mtime = int(info.mtime)
    # each name of a file is a file of its own
    archive.inodes = {}  # type: ignore[attr-defined]
    if not info.isreg():
        archive.addfile(info)
        if info.isdir():
            _pack(archive, entry.path, f"{name}/")
        return
    handle = os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if stat.S_ISREG(os.fstat(handle).st_mode):
            archive.addfile(info, cast("Any", Padded(handle, info.size)))
    finally:
        os.close(handle)
