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
from collections import deque
from collections.abc import Callable
from typing import TextIO

from benchmax.envs.logging import _CURRENT_GROUP_RIDS, _CURRENT_ROLLOUT_ID

from ..limits import MAX_TEXT_CHARS
from ..protocol import Log, Stream
from ..text import bounded
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
    """Find the rollouts of the current call that a log event of the group's execution names: one, or the group."""
    state = CURRENT_CALL.get()
    found = _NAMED_ROLLOUT.match(text)
    if found is None or state is None:
        return ()
    if found[1] in state.rollouts:
        return (found[1],)
    return tuple(sorted(state.rollouts)) if found[1] == "group" else ()


def current_place() -> Place:
    """Say what the calling code runs for, as every benchmax of the series keeps it."""
    state = CURRENT_CALL.get()
    if state is None or state.over:
        return OUTSIDE
    rollout = _CURRENT_ROLLOUT_ID.get()
    rollouts = (rollout,) if rollout is not None else _CURRENT_GROUP_RIDS.get() or ()
    # the contexts are public: code of the bundle may name rollouts of its own, which the caller does not know
    return (state.call, tuple(rollout_id for rollout_id in rollouts if rollout_id in state.rollouts))


class Account:
    """What one rollout, or a group, or a call outside of both has said.

    Args:
        limit: What it may cost in all: lines are sent until half of that is used up; the last ones that fit the other
            half wait, so that of a flood both ends are kept.
    """

    __slots__ = ("_drained", "_half", "_held", "_lost", "_lost_in", "_sent", "_waiting")

    def __init__(self, limit: int) -> None:
        self._half = max(1, limit // 2)
        self._sent = 0
        self._held = 0
        self._waiting: deque[Log] = deque()
        self._lost = 0
        self._lost_in: list[str] = []
        self._drained = False

    def takes(self, line: Log) -> bool:
        """Whether to send a line now; one that is not to be sent waits, at the cost of the oldest that do."""
        cost = line.cost
        if not self._waiting and not self._lost and self._sent + cost <= self._half:
            self._sent += cost
            return True
        self._waiting.append(line)
        self._held += cost
        while self._held > self._half:
            oldest = self._waiting.popleft()
            self._held -= oldest.cost
            self._lost += 1
            self._lost_in = oldest.rollouts
        return False

    def rest(self, call: int | None) -> list[Log]:
        """Give what waits, after the number of lines that were lost before it."""
        lines = [*self._waiting]
        if self._lost:
            gap = Log(call=call, rollouts=self._lost_in, stream="log", level=0, logger="", text="", dropped=self._lost)
            lines.insert(0, gap)
        self._waiting.clear()
        self._held = self._lost = 0
        return lines

    def drain(self, call: int | None) -> list[Log]:
        """The same before the end, since it may never come; only once, so that it stays within the limits."""
        if self._drained or not self._waiting:
            return []
        self._drained = True
        # the beginning is over: what comes now waits, even if there is little of it
        self._sent = self._half
        return self.rest(call)


class _CallOutput:
    """What code has said in one call, or outside of all: by whom, and in lines without an end so far."""

    __slots__ = ("accounts", "lines")

    def __init__(self) -> None:
        self.accounts: dict[str | None, Account] = {}
        self.lines: dict[tuple[tuple[str, ...], Stream], str] = {}


class OutputBook:
    """Sends what is logged and printed: the beginning at once, the end when it is known to be that.

    Args:
        emit: Sends one message; callable from any thread.
        limit: Characters kept per rollout, and for everything outside of rollouts together.
    """

    def __init__(self, emit: Emit, limit: int) -> None:
        self._emit = emit
        self._limit = limit
        self._calls: dict[int | None, _CallOutput] = {}
        self._lock = threading.Lock()

    def log(self, level: int, logger: str, text: str) -> None:
        """Send one log record."""
        place = current_place()
        if logger == GROUP_LOGGER and place != OUTSIDE and not place[1]:
            place = (place[0], named_rollouts(text))
        self._send(place, "log", level, logger, text)

    def printed(self, place: Place, stream: Stream, text: str) -> None:
        """Take in text printed inside rollouts; whole lines are sent, the rest waits for its end."""
        call, rollouts = place
        with self._lock:
            unfinished = self._call(call).lines
            text = unfinished.pop((rollouts, stream), "") + text
            lines, newline, rest = text.rpartition("\n")
            # a line without end must not grow without end
            if len(rest) > MAX_TEXT_CHARS:
                lines, newline, rest = lines + newline + rest, "\n", ""
            if rest:
                unfinished[rollouts, stream] = rest
        if newline:
            self._send(place, stream, 0, "", lines)

    def send_unfinished(self) -> None:
        """Send what waits for the end of a line or of a rollout, since it may never come; of a rollout only once."""
        with self._lock:
            calls = [*self._calls]
        for call in calls:
            self._send_lines(call)
        with self._lock:
            waiting = [
                line
                for call, output in self._calls.items()
                for account in output.accounts.values()
                for line in account.drain(call)
            ]
        for line in waiting:
            self._emit(line)

    def settle(self, call: int | None) -> None:
        """Send what is left of a call's output, or of that outside of calls; forget it."""
        if call not in self._calls:
            return
        self._send_lines(call)
        with self._lock:
            output = self._calls.pop(call)
        for account in output.accounts.values():
            for line in account.rest(call):
                self._emit(line)

    def _send_lines(self, call: int | None) -> None:
        with self._lock:
            output = self._call(call)
            lines, output.lines = output.lines, {}
        for (rollouts, stream), text in lines.items():
            self._send((call, rollouts), stream, 0, "", text)

    def _call(self, call: int | None) -> _CallOutput:
        output = self._calls.get(call)
        if output is None:
            output = self._calls[call] = _CallOutput()
        return output

    def _send(self, place: Place, stream: Stream, level: int, logger: str, text: str) -> None:
        if not text:
            return
        call, rollouts = place
        line = Log(
            call=call,
            rollouts=list(rollouts),
            stream=stream,
            level=min(max(level, 0), 1000),
            logger=bounded(logger, 200),
            text=bounded(text, MAX_TEXT_CHARS),
        )
        # all that a group says together is one account, whichever of its rollouts code of the bundle names
        whose = rollouts[0] if len(rollouts) == 1 else None if rollouts else ""
        with self._lock:
            accounts = self._call(call).accounts
            account = accounts.get(whose)
            if account is None:
                account = accounts[whose] = Account(self._limit)
            now = account.takes(line)
        if now:
            self._emit(line)


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
