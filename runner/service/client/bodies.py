"""The body of an upload: measured first, then sent in pieces, from its beginning again where that is needed."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

CHUNK: Final = 256 * 1024


class Body:
    """What is sent.

    Args:
        source: The content, or the file that has it.
        on_bytes: Told of each piece that was sent, with its size; negative for what is sent once more.
    """

    def __init__(self, source: bytes | Path, on_bytes: Callable[[int], None] | None = None) -> None:
        self._source = source
        self._on_bytes = on_bytes or (lambda _: None)
        self._told = 0

    def measure(self) -> tuple[int, str]:
        """Return size and SHA-256; reads all of it.

        Raises:
            OSError: the file cannot be read.
        """
        if isinstance(self._source, bytes):
            return len(self._source), hashlib.sha256(self._source).hexdigest()
        with self._source.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256")
            return file.tell(), digest.hexdigest()

    async def pieces(self) -> AsyncIterator[bytes]:
        """Give the content from its beginning; raises what `measure` does."""
        if self._told:
            self._on_bytes(-self._told)
            self._told = 0
        if isinstance(self._source, bytes):
            for start in range(0, len(self._source), CHUNK):
                yield self._count(self._source[start : start + CHUNK])
            return
        with await asyncio.to_thread(self._source.open, "rb") as file:
            while piece := await asyncio.to_thread(file.read, CHUNK):
                yield self._count(piece)

    def _count(self, piece: bytes) -> bytes:
        # told when the next one is asked for would be exact, and not of the last
        self._told += len(piece)
        self._on_bytes(len(piece))
        return piece
