"""An output of a command, as far as it is kept."""

from __future__ import annotations


class Kept:
    """Beginning and end of an output, each up to half of a limit."""

    def __init__(self, limit: int) -> None:
        self._half = limit // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0

    def add(self, data: bytes) -> None:
        """Take in the next bytes."""
        self._total += len(data)
        room = self._half - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        # trimming at twice the size keeps the cost per byte constant
        if len(self._tail) > 2 * self._half:
            del self._tail[: -self._half]

    def text(self) -> str:
        """Return what is kept, with a line that says how much is missing between."""
        tail = self._tail[-self._half :]
        missing = self._total - len(self._head) - len(tail)
        between = f"\n… {missing} bytes left out …\n".encode() if missing else b""
        return bytes(self._head + between + tail).decode("utf-8", "replace")
