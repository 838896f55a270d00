"""What the rollouts of one call logged and printed, as far as it is kept.

Comes in: the worker's `log` messages about rollouts of the call. Goes out: lines without secrets, with a mark where
others are missing. Refuses, as `FrameError`, floods.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from runner.holding import Holding
from runner.limits import KIB, LOG_SLACK
from runner.protocol import Log
from runner.record import LogLine
from runner.redaction import Redactor

LINE_BYTES: Final = 200
"""What a kept line takes beyond its text."""


class LogShelf:
    """The lines of one call's rollouts.

    Args:
        limit: Characters per rollout that an honest worker keeps to.
        holding: Room for what is kept.
        redactor: Cleans every text.
    """

    __slots__ = ("_cost", "_holding", "_kept", "_most", "_redactor", "held")

    def __init__(self, limit: int, holding: Holding, redactor: Redactor) -> None:
        self._most = most_output(limit)
        self._holding = holding
        self._redactor = redactor
        # a number stands for so many lines that are missing in that place
        self._kept: dict[str, list[LogLine | int]] = {}
        self._cost: dict[str, int] = {}
        self.held = 0
        """Bytes of the holding that the lines take."""

    def add(self, message: Log) -> None:
        """Take in one message.

        Raises:
            FrameError: it is one line too many.
        """
        line = log_line(message, self._redactor) if message.text else None
        missing = message.dropped
        if line is not None:
            size = _size(line)
            if self._holding.take(size):
                self.held += size
            else:
                line, missing = None, missing + 1
        for rollout_id in message.rollouts:
            kept = self._kept.setdefault(rollout_id, [])
            cost = self._cost.get(rollout_id, 0) + message.cost
            fits = cost <= self._most
            if fits:
                self._cost[rollout_id] = cost
            else:
                self._holding.count_excess()
            gap = missing + (line is not None and not fits)
            last = kept[-1] if kept else None
            if gap and isinstance(last, int):
                kept[-1] = last + gap
            elif gap:
                kept.append(gap)
            if line is not None and fits:
                self._append(kept, line)

    def _append(self, kept: list[LogLine | int], line: LogLine) -> None:
        last = kept[-1] if kept else None
        if isinstance(last, LogLine) and last.stream == line.stream:
            # a line that had grown too long was sent in pieces
            before, after = self._redactor.clean_seam(last.text, line.text)
            if before != last.text:
                kept[-1], line = replace(last, text=before), replace(line, text=after)
        kept.append(line)

    def lines(self, rollout_id: str) -> tuple[LogLine, ...]:
        """Return what is kept of a rollout's output, in order; where lines are missing, one that says how many."""
        return tuple(gap_line(line) if isinstance(line, int) else line for line in self._kept.get(rollout_id, ()))

    def size(self, rollout_id: str) -> int:
        """Return how many bytes a rollout's lines take, about."""
        return sum(_size(line) for line in self._kept.get(rollout_id, ()) if isinstance(line, LogLine))

    def missing(self, rollout_id: str) -> int:
        """Return how many of a rollout's lines are not kept."""
        return sum(line for line in self._kept.get(rollout_id, ()) if isinstance(line, int))


def log_line(message: Log, redactor: Redactor) -> LogLine:
    """Turn a log message into a line without secrets."""
    return LogLine(
        stream=message.stream,
        level=message.level,
        logger=redactor.clean(message.logger),
        text=redactor.clean(message.text),
    )


def _size(line: LogLine) -> int:
    return len(line.text) + len(line.logger) + LINE_BYTES


def most_output(limit: int) -> int:
    """Return what a worker that keeps to a limit on output can send of one rollout, as `Log.cost` counts."""
    return LOG_SLACK * max(limit, KIB)


def gap_line(count: int) -> LogLine:
    """Make the line that stands for so many that are missing."""
    return LogLine(stream="log", level=0, logger="", text=f"… {count} line{'s' if count != 1 else ''} left out …")
