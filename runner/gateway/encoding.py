"""Bodies that a server has compressed although it was not asked to, undone a bounded piece at a time."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final

from runner.limits import KIB

PIECE_BYTES: Final = 256 * KIB
"""The most that comes out at once: a few bytes can stand for a thousand times as many."""

_GZIP_OR_ZLIB: Final = zlib.MAX_WBITS | 32


class Inflater:
    """Undoes `gzip` and `deflate`."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(_GZIP_OR_ZLIB)

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield what some compressed bytes stand for.

        Raises:
            ValueError: they stand for nothing.
        """
        while data:
            try:
                piece = self._stream.decompress(data, PIECE_BYTES)
            except zlib.error as error:
                raise ValueError(str(error)) from None
            if piece:
                yield piece
            data = self._stream.unconsumed_tail
            if self._stream.eof:
                # several may follow one another
                data = self._stream.unused_data
                if data:
                    self._stream = zlib.decompressobj(_GZIP_OR_ZLIB)

    def finish(self) -> None:
        """No more comes.

        Raises:
            ValueError: more should have.
        """
        if not self._stream.eof:
            raise ValueError("it ends too early")
