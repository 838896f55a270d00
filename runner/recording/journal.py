"""A file that only grows, one JSON object a line: each line is there whole, or not at all.

Comes in: values of one type. Goes out: the same, in order. A line is one write, so whatever ends the process leaves at
most a torn last line behind. That is dropped when the file is read, and cut off before more is appended.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from runner.errors import RunnerError, UsageError

READ_BYTES: Final = 1024 * 1024
"""Read at once while a file is gone through; single lines may be longer."""

T = TypeVar("T")


class Place(NamedTuple):
    """Where a line stands in its file, in bytes, without the line break."""

    offset: int
    length: int


class Journal:
    """A journal that is written. One process at a time may have it open.

    Args:
        path: The file; it is made, for its owner alone, if it is not there.

    Raises:
        OSError: it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._encoder = msgspec.json.Encoder()
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        self.failure: RunnerError | None = None
        try:
            self._bytes = whole_bytes(self._descriptor)
            os.ftruncate(self._descriptor, self._bytes)
        except BaseException:
            os.close(self._descriptor)
            raise

    def append(self, entry: msgspec.Struct) -> None:
        """Write one line. When that fails, `failure` says why, and nothing more is written."""
        if self.failure is not None:
            return
        line = self._encoder.encode(entry) + b"\n"
        view = memoryview(line)
        try:
            while view:
                # more than one write only where the disk is full or a limit is met, and then the next one says so
                view = view[os.write(self._descriptor, view) :]
        except OSError as error:
            # a reader that is not told of the failure must not take the beginning of a line for one
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self._bytes)
            self.failure = RunnerError(
                f"cannot write the record's {self._path.name}: {error.strerror}.",
                hint="Make room and go on with `benchmax run --resume`.",
            )
            return
        self._bytes += len(line)

    def close(self) -> None:
        """Close the file; harmless twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class Lines(Generic[T]):
    """A journal that is read.

    Args:
        path: The file; one that is not there has no lines.
        type_: What each line is.
    """

    def __init__(self, path: Path, type_: type[T]) -> None:
        self._path = path
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(type_)

    def __iter__(self) -> Iterator[T]:
        return (entry for _, entry in self.placed())

    def placed(self) -> Iterator[tuple[Place, T]]:
        """Give each line and where it stands.

        Raises:
            UsageError: a line is not what it should be, or the file cannot be read.
        """
        offset = 0
        try:
            with self._path.open("rb", buffering=READ_BYTES) as file:
                for line in file:
                    if not line.endswith(b"\n"):
                        # torn: whoever wrote it was ended in the middle
                        return
                    yield Place(offset, len(line) - 1), self._decoder.decode(line)
                    offset += len(line)
        except FileNotFoundError:
            return
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise _broken(self._path, f"byte {offset}: {error}") from error
        except OSError as error:
            raise _broken(self._path, error.strerror or str(error)) from error

    def at(self, place: Place) -> T:
        """Read one line again.

        Raises:
            UsageError: it is not what it should be, or the file cannot be read.
        """
        try:
            with self._path.open("rb", buffering=0) as file:
                data = os.pread(file.fileno(), place.length, place.offset)
            return self._decoder.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise _broken(self._path, f"byte {place.offset}: {error}") from error
        except OSError as error:
            raise _broken(self._path, error.strerror or str(error)) from error


def whole_bytes(descriptor: int) -> int:
    """Return where the last whole line of a file ends."""
    end = os.fstat(descriptor).st_size
    while end > 0:
        begin = max(0, end - READ_BYTES)
        found = os.pread(descriptor, end - begin, begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        end = begin
    return 0


def _broken(path: Path, reason: str) -> UsageError:
    return UsageError(f"the record's {path.name} cannot be read: {reason}.", hint="Record it again.")
