"""What a bundle logs and prints, attributed to the rollout it happened in, and bounded where it arises.

Text printed outside of any rollout, and everything written to the descriptors directly, stays on the captured
standard streams; the caller keeps those as bounded tails.
"""

from __future__ import annotations

import io
import logging
import re
import sys
import threading
from collections.abc import Callable
from typing import TextIO

from benchmax.envs.logging import _CURRENT_GROUP_RIDS, _CURRENT_ROLLOUT_ID

from ..limits import MAX_TEXT_CHARS
from ..protocol import Log, Stream, bounded
from .calls import CURRENT_CALL

Emit = Callable[[Log], None]

QUIET_LOGGERS = ("httpx", "httpx2", "httpcore", "httpcore2", "openai", "asyncio")
"""Their INFO lines say once per request what the transcript shows; warnings still come through."""


Place = tuple[int | None, tuple[str, ...]]
"""A call and its rollouts that some output belongs to."""
OUTSIDE: Place = (None, ())


GROUP_LOGGER = "benchmax.envs.environment"
"""Logs how rollouts ended after their context was left; its texts name the rollout instead."""
_NAMED_ROLLOUT = re.compile(r"benchmax\.rollout\.\w+ rollout_id=(.+?) termination_reason=")


def named_rollouts(text: str) -> tuple[str, ...]:
    """Find the rollout of the current call that a log event of the group's execution names."""
    state = CURRENT_CALL.get()
    found = _NAMED_ROLLOUT.match(text)
    return (found[1],) if found and state is not None and found[1] in state.rollouts else ()


def current_place() -> Place:
    """Say what the calling code runs for, as every benchmax of the series keeps it."""
    state = CURRENT_CALL.get()
    if state is None or state.over:
        return OUTSIDE
    rollout = _CURRENT_ROLLOUT_ID.get()
    rollouts = (rollout,) if rollout is not None else _CURRENT_GROUP_RIDS.get() or ()
    # the contexts are public: code of the bundle may name rollouts of its own, which the caller does not know
    return (state.call, tuple(rollout_id for rollout_id in rollouts if rollout_id in state.rollouts))


class OutputBook:
    """Sends what is logged and printed, up to a number of characters per rollout, and counts the rest.

    Args:
        emit: Sends one message; callable from any thread.
        limit: Characters kept per rollout, and for everything outside of rollouts together.
    """

    def __init__(self, emit: Emit, limit: int) -> None:
        self._emit = emit
        self._limit = limit
        self._used: dict[Place, int] = {}
        self._dropped: dict[Place, int] = {}
        self._lines: dict[tuple[Place, Stream], str] = {}
        self._lock = threading.Lock()

    def log(self, level: int, logger: str, text: str) -> None:
        """Send one log record."""
        place = current_place()
        if logger == GROUP_LOGGER and place != OUTSIDE and not place[1]:
            place = (place[0], named_rollouts(text))
        self._send(place, "log", level, logger, text)

    def printed(self, place: Place, stream: Stream, text: str) -> None:
        """Take in text printed inside rollouts; whole lines are sent, the rest waits for its end."""
        key = (place, stream)
        with self._lock:
            text = self._lines.pop(key, "") + text
            lines, newline, rest = text.rpartition("\n")
            # a line without end must not grow without end
            if len(rest) > MAX_TEXT_CHARS:
                lines, newline, rest = lines + newline + rest, "\n", ""
            if rest:
                self._lines[key] = rest
        if newline:
            self._send(place, stream, 0, "", lines)

    def settle(self, call: int) -> None:
        """Send what is left of a call's output, and how much was dropped; forget it."""
        with self._lock:
            lines = [(key, self._lines.pop(key)) for key in [*self._lines] if key[0][0] == call]
        for (place, stream), text in lines:
            self._send(place, stream, 0, "", text)
        with self._lock:
            for place in [place for place in self._used if place[0] == call]:
                del self._used[place]
            dropped = [(place, self._dropped.pop(place)) for place in [*self._dropped] if place[0] == call]
        for (_, rollouts), count in dropped:
            self._emit(
                Log(call=call, rollouts=list(rollouts), stream="log", level=0, logger="", text="", dropped=count)
            )

    def _send(self, place: Place, stream: Stream, level: int, logger: str, text: str) -> None:
        text = bounded(text, MAX_TEXT_CHARS)
        with self._lock:
            used = self._used.get(place, 0) + len(text) + 1
            if used > self._limit:
                self._dropped[place] = self._dropped.get(place, 0) + 1
                return
            self._used[place] = used
        call, rollouts = place
        self._emit(
            Log(
                call=call,
                rollouts=list(rollouts),
                stream=stream,
                level=min(max(level, 0), 1000),
                logger=bounded(logger, 200),
                text=text,
            )
        )


class LogHandler(logging.Handler):
    """Passes every record that reaches the root logger on to the book."""

    def __init__(self, book: OutputBook) -> None:
        super().__init__()
        self._book = book
        self._formatter = logging.Formatter()

    def emit(self, record: logging.LogRecord) -> None:
        """Format and send one record; one that cannot be formatted is sent as that fact."""
        try:
            text = record.getMessage()
            if record.exc_info and record.exc_info[0] is not None:
                text += "\n" + self._formatter.formatException(record.exc_info)
        except Exception as error:  # noqa: BLE001 - arguments of an author's log call may do anything
            what = f" for {record.msg[:200]!r}" if type(record.msg) is str else ""
            text = f"<log record not formattable: {type(error).__name__}{what}>"
        self._book.log(record.levelno, record.name, text)


class AttributedStream(io.TextIOBase):
    """Stands in for `sys.stdout` or `sys.stderr`: text printed inside a rollout goes to the book."""

    def __init__(self, book: OutputBook, stream: Stream, original: TextIO) -> None:
        super().__init__()
        self._book = book
        self._stream: Stream = stream
        self._original = original
        if isinstance(original, io.TextIOWrapper):
            # what was printed before a crash is what explains it
            original.reconfigure(line_buffering=True)

    def write(self, text: str, /) -> int:
        """Write text where it belongs."""
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        place = current_place()
        if place != OUTSIDE:
            self._book.printed(place, self._stream, text)
            return len(text)
        return self._original.write(text)

    def flush(self) -> None:
        """Flush the captured stream underneath."""
        self._original.flush()

    def fileno(self) -> int:
        """Descriptor of the captured stream underneath."""
        return self._original.fileno()

    def isatty(self) -> bool:
        """Never a terminal."""
        return False

    def writable(self) -> bool:
        """Text can be written."""
        return True

    def __getattr__(self, name: str) -> object:
        """Everything else (`reconfigure`, `name`, `mode`, …) is the captured stream's."""
        return getattr(self._original, name)

    @property
    def buffer(self) -> object:
        """The binary stream underneath; what is written there is not attributed."""
        return self._original.buffer

    @property
    def encoding(self) -> str:  # type: ignore[override]  # a plain attribute in typeshed
        """Encoding of the stream underneath."""
        return self._original.encoding


def install(book: OutputBook) -> None:
    """Route logging and the standard streams through the book. Call once, before anything of a bundle runs."""
    root = logging.getLogger()
    root.addHandler(LogHandler(book))
    root.setLevel(logging.INFO)
    for name in QUIET_LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.captureWarnings(True)
    sys.stdout = AttributedStream(book, "stdout", sys.stdout)
    sys.stderr = AttributedStream(book, "stderr", sys.stderr)
