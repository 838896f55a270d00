"""Live progress on standard error: phases with elapsed time, then how the rollouts stand.

On a terminal a block of a few lines is kept up to date; elsewhere there are plain lines: one per phase, and one about
what lasts every ten seconds. However many rollouts end, what one of them costs here is the same.
"""

from __future__ import annotations

import heapq
import logging
import sys
import threading
import time
import unicodedata
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Final, Self

from rich.cells import cell_len, set_cell_size
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from runner.cli.console import console
from runner.cli.pace import Pace, duration, rate
from runner.provision import ProvisionEvent
from runner.record import Event, OutputEvent, PhaseEvent, RecordEvent, StallEvent, UnreachableEvent, WorkerEvent
from runner.report.tally import OTHER_REASONS, Tally
from runner.text import one_line

PLAIN_INTERVAL_S: Final = 10.0
"""Silence after which there is a line about what lasts, where there is no terminal."""

REFRESHES_PER_S: Final = 8
SHOWN_REASONS: Final = 3
NOTES_AT_ONCE: Final = 20
NOTES_PER_S: Final = 1.0
"""Lines about what happens on the side: some at once, then few, so that a bundle cannot push all else away."""

_SPINNER_COLUMNS: Final = 2
_BETWEEN: Final = " · "


class Progress:
    """Shows events as they come. Use as a context manager.

    Args:
        tally: Says how the rollouts stand, from whatever thread; `None` where there are none.
        interval_s: Silence after which there is a line, where there is no terminal.
    """

    def __init__(self, tally: Callable[[], Tally] | None = None, *, interval_s: float = PLAIN_INTERVAL_S) -> None:
        self._console = console(error=True)
        self._live: Live | None = None
        self._spinner = Spinner("dots")
        self._tally = tally
        self._interval_s = interval_s
        self._began = self._last_told = time.monotonic()
        self._phase = ""
        self._phase_began = self._began
        self._pace = Pace()
        self._records = 0
        self._next_line_at = 1
        self._said = ""
        self._notes = float(NOTES_AT_ONCE)
        self._noted = self._began
        self._withheld = 0
        self._ended = threading.Event()
        self._ticking: threading.Thread | None = None

    def __enter__(self) -> Self:
        # a stream that only takes colours is no place to move a cursor in
        if self._console.is_interactive and sys.stderr.isatty():
            self._live = Live(
                console=self._console,
                refresh_per_second=REFRESHES_PER_S,
                transient=True,
                get_renderable=self._block,
            )
            self._live.start()
        else:
            self._ticking = threading.Thread(target=self._tick, name="benchmax-progress", daemon=True)
            self._ticking.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._tell_withheld()
        if self._live is not None:
            self._live.stop()
        if self._ticking is not None:
            self._ended.set()
            self._ticking.join()
            self._say_rollouts()

    def abandon(self) -> None:
        """Leave the terminal as it was, when the process is about to end at once."""
        if self._live is not None:
            self._console.show_cursor(True)

    def note(self, text: str) -> None:
        """Show a line of its own."""
        self._print(text)

    def on_provision(self, event: ProvisionEvent) -> None:
        """Show one step of provisioning."""
        self._begin(event.phase, event.message)

    def on_event(self, event: Event) -> None:
        """Show one event of a run."""
        match event:
            case PhaseEvent():
                self._begin(event.phase, event.message)
            case RecordEvent():
                self._on_record()
            case WorkerEvent(state="ended"):
                self._on_the_side(f"worker ended: {event.message}")
            case StallEvent():
                self._on_the_side(_stall(event))
            case UnreachableEvent():
                self._on_the_side(f"cannot connect to {event.endpoint}: {event.reason}")
            case OutputEvent() if event.line.level >= logging.ERROR:
                # the first line says it; a traceback below it is for --show-output
                first = event.line.text.strip().partition("\n")[0]
                self._on_the_side(f"{event.line.logger}: {first}")
            case _:
                pass

    def _begin(self, phase: str, message: str) -> None:
        if self._live is None:
            # how it stood when the phase before ended
            self._say_rollouts()
        self._phase = f"{phase}: {message}"
        self._phase_began = time.monotonic()
        self._tell(self._phase)

    def _on_record(self) -> None:
        self._records += 1
        if self._records >= self._next_line_at:
            self._next_line_at *= 10
            if self._live is None:
                self._say_rollouts()

    def _on_the_side(self, text: str) -> None:
        now = time.monotonic()
        self._notes = min(NOTES_AT_ONCE, self._notes + (now - self._noted) * NOTES_PER_S)
        self._noted = now
        if self._notes < 1:
            self._withheld += 1
            return
        self._tell_withheld()
        self._notes -= 1
        self._print(text)

    def _tell_withheld(self) -> None:
        if self._withheld:
            self._print(f"… and {self._withheld:,} more such line{'s' if self._withheld > 1 else ''}")
            self._withheld = 0

    def _tell(self, text: str) -> None:
        """Print how far it is; what happens on the side is no news of that."""
        self._last_told = time.monotonic()
        self._print(text)

    def _print(self, text: str) -> None:
        line = f"[{time.monotonic() - self._began:6.1f}s] {one_line(text, 300)}"
        self._console.print(Text(line, style="dim"), soft_wrap=True)

    # -- plain lines ------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        while not self._ended.wait(max(0.0, self._last_told + self._interval_s - time.monotonic())):
            if time.monotonic() - self._last_told < self._interval_s:
                continue
            tally = self._stand()
            if tally is not None and not tally.over:
                self._say_rollouts()
            elif self._phase:
                self._tell(f"still {self._phase} ({duration(time.monotonic() - self._phase_began)})")
            else:
                self._last_told = time.monotonic()

    def _stand(self) -> Tally | None:
        """How the rollouts stand; `None` before there are any."""
        tally = None if self._tally is None else self._tally()
        return tally if tally is not None and tally.expected else None

    def _say_rollouts(self) -> None:
        tally = self._stand()
        if tally is None or (not tally.to_go and not tally.over):
            # before the first, and where the last line is about to come
            return
        counts = ", ".join(_counts(tally))
        if tally.over and counts == self._said:
            return
        self._said = counts
        reasons = f" (failed: {', '.join(_reasons(tally))})" if tally.failed else ""
        pace = "".join(f", {part}" for part in self._speed(tally))
        self._tell(f"{_done(tally)} ({_percent(tally)} %): {counts}{reasons}{pace}")

    # -- the block on a terminal ------------------------------------------------------------------------------

    def _block(self) -> Spinner:
        # the last column stays free: some terminals begin a new row as soon as it is written
        width = max(10, self._console.width - _SPINNER_COLUMNS - 1)
        elapsed = _clock(time.monotonic() - self._began)
        tally = self._stand()
        if tally is None or tally.over:
            since = f"for {duration(time.monotonic() - self._phase_began)}"
            rows = _rows([f"{elapsed}  {one_line(self._phase, 200)}", since] if self._phase else [elapsed], width)
        else:
            rows = _rows([f"{elapsed}  {_done(tally)}", f"{_percent(tally)} %", *self._speed(tally)], width)
        if tally is not None:
            rows += _rows(_counts(tally), width)
            if tally.failed:
                first, *others = _reasons(tally)
                rows += _rows([f"failed: {first}", *others], width)
        self._spinner.update(text=Text("\n".join(rows)))
        return self._spinner

    def _speed(self, tally: Tally) -> list[str]:
        """Rate, time left, and what models are being asked, as far as these are known."""
        if tally.over:
            return []
        per_second = self._pace.at(tally.seconds, tally.done - tally.kept)
        parts = [f"{rate(per_second)}, {duration(tally.to_go / per_second)} left"] if per_second else []
        if tally.calls is not None:
            parts.append(f"{tally.calls:,} model call{'' if tally.calls == 1 else 's'} in flight")
        return parts


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes}:{rest:02}"


def _done(tally: Tally) -> str:
    return f"{tally.done:,} of {tally.expected:,} rollouts done"


def _percent(tally: Tally) -> int:
    # rounded down: all of it is done when it is
    return tally.done * 100 // tally.expected


def _counts(tally: Tally) -> list[str]:
    """All of `expected`, by what became of it."""
    parts = [f"{tally.ok:,} ok", f"{tally.failed:,} failed"]
    if tally.missing:
        parts.append(f"{tally.missing:,} missing")
    if not tally.over:
        parts.append(f"{tally.to_go:,} to go")
        running = tally.under_way - tally.unscored
        parts.append(f"{running:,} of them running")
        if tally.unscored:
            parts.append(f"{tally.unscored:,} of them run but not scored")
    if tally.kept:
        parts.append(f"{tally.kept:,} of those done are from before")
    return parts


def _reasons(tally: Tally) -> Iterable[str]:
    """The most frequent reasons of failures, and the others as one; the count first, lest it be cut off."""
    named = {name: count for name, count in tally.reasons.items() if name != OTHER_REASONS}
    top = heapq.nlargest(SHOWN_REASONS, named.items(), key=lambda item: item[1])
    for name, count in top:
        yield f"{count:,} {one_line(name, 40)}"
    rest = tally.failed - sum(count for _, count in top)
    if rest:
        yield f"{rest:,} {OTHER_REASONS}"


def _rows(parts: Iterable[str], width: int) -> list[str]:
    """Put parts into as few rows as they fit; one that fits none is cut."""
    rows: list[str] = []
    for part in map(_steady, parts):
        if rows and cell_len(rows[-1]) + len(_BETWEEN) + cell_len(part) <= width:
            rows[-1] += f"{_BETWEEN}{part}"
        else:
            rows.append(part if cell_len(part) <= width else set_cell_size(part, width - 1).rstrip() + "…")
    return rows


def _steady(text: str) -> str:
    """Replace characters that terminals do not agree on how wide they are: a row that wraps cannot be drawn over."""
    if text.isascii():
        return text
    return "".join("?" if unicodedata.category(c) in ("Mn", "Mc", "Me", "So", "Sk", "Lm") else c for c in text)


def _stall(event: StallEvent) -> str:
    """One line on a worker whose event loop is held up, or was."""
    ids = event.rollout_ids
    who = ids[0] if ids else "code outside of rollouts"
    if len(ids) > 1:
        who += f" and {len(ids) - 1} more"
    since = f"{'was' if event.over else 'is'} held up for {event.seconds:.1f} s"
    text = f"worker {event.pid} {since} by {who} at {event.where}"
    return f"{text}; {event.unreported} more such stalls before" if event.unreported else text
