"""A stream of bytes cut into frames: a length, then a body. What a body says is for the protocol to know.

This file is shipped into the worker, so it needs nothing but the standard library.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from .errors import FrameError
from .limits import KIB, MAX_FRAME_BYTES
from .protocol import HEADER

READ_BYTES: Final = 16 * KIB
"""Room for one read. Small, so that one turn of a loop takes in what it can work off soon, and the two ends of a
channel work at the same time instead of in turn."""


def frame_length(header: bytes | bytearray | memoryview, *, limit: int = MAX_FRAME_BYTES) -> int:
    """Read a frame's length from its four header bytes.

    Raises:
        FrameError: the length is zero or above the limit.
    """
    length: int = HEADER.unpack(header)[0]
    if length == 0:
        raise FrameError("a frame announces 0 bytes, expected at least 1.")
    if length > limit:
        raise FrameError(f"a frame announces {length} bytes, expected at most {limit}.")
    return length


class FrameParser:
    """Cuts a stream of bytes into frames, keeping what is not whole yet.

    Bytes are read straight into `room` and told by `arrived`, or given to `feed`. No room is made for a body that has
    not come: it grows as the body does. A length is checked as soon as its four bytes are there.
    """

    def __init__(self, *, limit: int = MAX_FRAME_BYTES) -> None:
        self._limit = limit
        self._buffer = bytearray(READ_BYTES)
        self._begin = 0
        self._end = 0

    def room(self) -> memoryview:
        """Return where the next bytes are to be put; it stands until the next call of `arrived`."""
        kept = self._end - self._begin
        if kept == 0:
            if len(self._buffer) > READ_BYTES:
                self._buffer = bytearray(READ_BYTES)
            self._begin = self._end = 0
        elif len(self._buffer) - self._end < READ_BYTES // 2:
            # never in place: whoever reads into it may still hold the room returned before
            size = 2 * kept
            if kept >= HEADER.size:
                # doubling makes growth cheap, but the end of the frame is known
                length = HEADER.unpack_from(self._buffer, self._begin)[0]
                size = min(size, HEADER.size + length + READ_BYTES)
            buffer = bytearray(max(size, kept + READ_BYTES))
            # by views: assigned to the array itself, what is copied would be copied twice
            memoryview(buffer)[:kept] = memoryview(self._buffer)[self._begin : self._end]
            self._buffer, self._begin, self._end = buffer, 0, kept
        return memoryview(self._buffer)[self._end :]

    def arrived(self, count: int) -> Iterator[memoryview]:
        """Say how many bytes have been put into the room; give the bodies that are whole now one by one.

        A body stands until the next call of `room`. Every body before a broken frame is given, however the bytes were
        cut into pieces on their way.

        Raises:
            FrameError: while iterating: the next frame announces a length of zero or above the limit.
        """
        self._end += count
        view = memoryview(self._buffer)
        while self._end - self._begin >= HEADER.size:
            body = self._begin + HEADER.size
            stop = body + frame_length(view[self._begin : body], limit=self._limit)
            if stop > self._end:
                return
            self._begin = stop
            yield view[body:stop]

    def feed(self, data: bytes | memoryview) -> Iterator[bytes]:
        """Take in bytes that are already here, at once, and give the bodies as `arrived` does, as bytes of their own.

        Raises:
            FrameError: as `arrived`.
        """
        rest = memoryview(data)
        while rest:
            room = self.room()
            count = min(len(room), len(rest))
            room[:count] = rest[:count]
            self._end += count
            rest = rest[count:]
        return map(bytes, self.arrived(0))

    def finish(self) -> None:
        """Say that no more bytes will come.

        Raises:
            FrameError: an unfinished frame is left; the text says expected and got.
        """
        left = self._end - self._begin
        if left == 0:
            return
        if left < HEADER.size:
            raise FrameError(
                f"the stream ended inside a frame's header: expected {HEADER.size} bytes, got {left}.", unfinished=True
            )
        header = self._buffer[self._begin : self._begin + HEADER.size]
        expected = frame_length(header, limit=self._limit)
        raise FrameError(
            f"the stream ended inside a frame's body: expected {expected} bytes, got {left - HEADER.size}.",
            unfinished=True,
        )
