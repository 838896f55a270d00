"""Live progress on standard error: phases with elapsed time, then rollouts as they end.

On a terminal one line is kept up to date; elsewhere there are plain lines, one per phase and at most one every few
seconds while rollouts run.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from runner.cli.console import console
from runner.provision import ProvisionEvent
from runner.record import (
    Event,
    OutputEvent,
    PhaseEvent,
    RecordEvent,
    RolloutsEndedEvent,
    StallEvent,
    UnreachableEvent,
    WorkerEvent,
)
from runner.text import one_line

PLAIN_INTERVAL_S: Final = 5.0
"""Between two lines about rollouts where there is no terminal."""


class Progress:
    """Shows events as they come. Use as a context manager.

    Args:
        expected: Says how many rollouts there will be; 0 while that is not known.
    """

    def __init__(self, expected: Callable[[], int] = lambda: 0) -> None:
        self._console = console(error=True)
        self._live: Live | None = None
        self._spinner = Spinner("dots")
        self._expected = expected
        self._began = time.monotonic()
        self._phase = ""
        self._run = 0
        self._ended: Counter[str] = Counter()
        self._last_plain = 0.0

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live = Live(console=self._console, refresh_per_second=8, transient=True, get_renderable=self._line)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

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
            case RolloutsEndedEvent():
                self._run += len(event.rollout_ids)
                self._rollouts()
            case RecordEvent():
                self._ended[event.record.outcome.termination_reason] += 1
                self._rollouts()
            case WorkerEvent(state="ended"):
                self._print(f"worker ended: {event.message}")
            case StallEvent():
                self._print(_stall(event))
            case UnreachableEvent():
                self._print(f"cannot connect to {event.endpoint}: {event.reason}")
            case OutputEvent() if event.line.level >= logging.ERROR:
                # the first line says it; a traceback below it is for --show-output
                first = event.line.text.strip().partition("\n")[0]
                self._print(f"{event.line.logger}: {first}")
            case _:
                pass

    def _begin(self, phase: str, message: str) -> None:
        self._phase = f"{phase}: {message}"
        self._print(f"{self._phase}")

    def _rollouts(self) -> None:
        scored, expected = sum(self._ended.values()), self._expected()
        # a rollout whose worker died has an outcome without having run to its end
        done = max(scored, self._run)
        self._phase = f"rollouts: {done} of {expected or '?'} run, {scored} scored"
        if self._live is not None:
            return
        now = time.monotonic()
        if scored == expected or now - self._last_plain >= PLAIN_INTERVAL_S:
            self._last_plain = now
            reasons = ", ".join(f"{name} {count}" for name, count in self._ended.most_common())
            self._print(f"{self._phase} ({reasons})" if reasons else self._phase)

    def _print(self, text: str) -> None:
        elapsed = time.monotonic() - self._began
        self._console.print(Text(f"[{elapsed:6.1f}s] {one_line(text, 300)}", style="dim"), soft_wrap=True)

    def _line(self) -> Spinner:
        elapsed = time.monotonic() - self._began
        # one row, since a wrapped line cannot be redrawn in place
        room = max(10, self._console.width - 14)
        self._spinner.update(text=Text(f"{elapsed:6.1f}s  {one_line(self._phase, room)}"))
        return self._spinner


def _stall(event: StallEvent) -> str:
    """One line on a worker whose event loop is held up, or was."""
    ids = event.rollout_ids
    who = ids[0] if ids else "code outside of rollouts"
    if len(ids) > 1:
        who += f" and {len(ids) - 1} more"
    since = f"{'was' if event.over else 'is'} held up for {event.seconds:.1f} s"
    text = f"worker {event.pid} {since} by {who} at {event.where}"
    return f"{text}; {event.unreported} more such stalls before" if event.unreported else text
