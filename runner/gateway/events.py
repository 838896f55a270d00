"""Server-sent events as they come: whole ones go on at once, and an unfinished one waits for its end.

An event is of no use to anybody before its end, and as only whole ones have gone on, an error can be told as one more.
"""

from __future__ import annotations

import re
from typing import Final

_END: Final = re.compile(rb"\r\n\r\n|\n\n|\r\r|\n\r\n|\r\n\n")
_LINE_END: Final = re.compile(rb"\r\n|\n|\r")


class EventStream:
    """Cuts a stream of bytes after events."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> bytes:
        """Take what came; return the events that are whole by now, one after another, as they were written."""
        rest = self._rest
        if not rest and data.endswith(b"\n\n"):
            return data
        # an end may have begun in what was there before; the rest of that has been looked through
        start = max(0, len(rest) - 3)
        rest += data
        cut = rest.rfind(b"\n\n", start) + 2
        if cut == 1:
            cut = 0
        if b"\r" in data or (start < len(rest) - len(data) and b"\r" in rest[start:]):
            for found in _END.finditer(rest, start):
                cut = max(cut, found.end())
        whole = bytes(rest[:cut])
        del rest[:cut]
        return whole

    def finish(self) -> bytes:
        """The stream is over: return what is left of it, with an end where that lacks."""
        rest = bytes(self._rest)
        self._rest.clear()
        return rest + b"\n\n" if rest.strip() else b""


def split_events(events: bytes) -> list[bytes]:
    """Return single events, each with its end."""
    pieces = []
    start = 0
    for found in _END.finditer(events):
        pieces.append(events[start : found.end()])
        start = found.end()
    return pieces


def event_data(event: bytes) -> bytes:
    """Return the data of one event: of several lines, joined as the standard has it."""
    lines = [line[5:].removeprefix(b" ") for line in _LINE_END.split(event) if line.startswith(b"data:")]
    return b"\n".join(lines)
