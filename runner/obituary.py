"""What is known of how a worker ended, in words: where it was, what it wrote last, how its process went.

Comes in: the process's exit, which its supervisor has told, and what the worker itself said before. Goes out: texts
without secrets. What may be is told as what may be.
"""

from __future__ import annotations

import signal
from typing import Final

from runner.errors import RunnerError, SandboxUnavailableError, WorkerEnd, WorkerStartError
from runner.inspection import Sighting
from runner.launch import Launched
from runner.limits import MIB, Limits
from runner.process import Exit
from runner.protocol import MAX_REFUSAL_CHARS
from runner.redaction import Redactor
from runner.text import bounded, printable

LAST_LINES: Final = 3
"""What a worker wrote last, as far as it is quoted."""

CRASHES: Final = (signal.SIGSEGV, signal.SIGILL, signal.SIGBUS, signal.SIGABRT)
"""Signals that a process gets for what its own machine code does."""

KILLING: Final = frozenset({"memory_bytes", "disk_bytes"})
"""Limits on the whole tree that end what exceeds them; at the others, calls fail."""


class Obituary:
    """Gathers what is known of one worker's end.

    Args:
        launched: Its process.
        limits: What it may use.
        redactor: Cleans every text of its.
    """

    def __init__(self, launched: Launched, limits: Limits, redactor: Redactor) -> None:
        self._launched = launched
        self._limits = limits
        self._redactor = redactor
        self.seen: Sighting | None = None
        """Where it was, once that is known."""
        self.exit: Exit | None = None
        """How its process ended, once it has."""

    @property
    def crashed(self) -> bool:
        """Whether its own machine code ended it."""
        return self.exit is not None and self.exit.signal in CRASHES

    @property
    def located(self) -> str:
        """Where it was, as a sentence with a space before it; empty while that is not known."""
        return "" if self.seen is None else f" {self._redactor.clean(self.seen.text)}"

    @property
    def stack(self) -> str:
        """Where it was, as a stack; empty while that is not known."""
        return "" if self.seen is None else self._redactor.clean(self.seen.stack)

    @property
    def last_words(self) -> str:
        """What it wrote last, as a sentence with a space before it; empty when it wrote nothing."""
        lines = self._last_lines()
        return f" Last output: {' | '.join(lines)}" if lines else ""

    def start_error(self, text: str) -> RunnerError:
        """Make the error of a worker that ended before it was ready: of the sandbox where there never was a worker."""
        if self.exit is not None and self.exit.refused:
            return SandboxUnavailableError(
                f"sandbox {self._launched.policy.level}: it could not be made.{self.last_words}",
                hint="`benchmax doctor` says what works here.",
            )
        return WorkerStartError(text, detail=self.stack)

    def broke_the_protocol(self, what: str) -> str:
        """Say that it was killed for what it sent."""
        # it quotes names and values of the worker's choosing
        what = printable(bounded(self._redactor.clean(what), MAX_REFUSAL_CHARS)).removesuffix(".")
        return f"The worker broke the protocol and was killed: {what}.{self._reached()}"

    def did_not_stop(self) -> str:
        """Say that it was killed for the sake of a call."""
        grace = f"The worker was killed {self._limits.cancel_grace_s:g} s after it was asked to stop."
        return f"{grace}{self.located}{self._reached()}{self._leftover()}"

    def ended(self, doing: str) -> str:
        """Say that it ended by itself.

        Args:
            doing: What it was doing, such as `with 3 rollouts in flight`.
        """
        how = self.exit or Exit(lost=True)
        text = f"The worker ended by {how} {doing}.{self.located}{self._reached()}"
        killed = how.signal == signal.SIGKILL and not how.escalated
        limit = self._limits.memory_bytes
        if not KILLING.isdisjoint(how.reached):
            # that was it
            pass
        elif limit is not None and (killed or self.crashed):
            text += f" It may be out of memory: its limit is {limit / MIB:.4g} MiB for each process."
        elif killed:
            text += " It may be out of memory, or something else killed it."
        if self.crashed:
            text += " A compiled package can do that, or a bundle made by another Python than its metadata says."
        return f"{text}{self._leftover()}"

    def account(self, code: str, text: str, *, ready: bool) -> WorkerEnd:
        """Put all of it together.

        Args:
            code: Code of the error that it was.
            text: What happened, in one line.
            ready: Whether the worker had become ready.
        """
        return WorkerEnd(
            pid=self._launched.process.pid,
            ready=ready,
            code=code,
            exit="" if self.exit is None else str(self.exit),
            text=text,
            output=tuple(self._last_lines()),
            stack=self.stack,
        )

    def _last_lines(self) -> list[str]:
        lines = self._launched.stderr.last_lines(LAST_LINES) or self._launched.stdout.last_lines(LAST_LINES)
        return [printable(self._redactor.clean(line)) for line in lines]

    def _reached(self) -> str:
        """Which limits it met, as a sentence with a space before it; empty where none is known to be met."""
        if self.exit is None:
            return ""
        names = [*self.exit.reached, *(["file_bytes"] if self.exit.signal == signal.SIGXFSZ else [])]
        met = [f"limits.{name} = {self._shown(name)}" for name in names]
        return f" It reached {' and '.join(met)}." if met else ""

    def _shown(self, name: str) -> str:
        value = getattr(self._limits, name)
        return f"{value / MIB:.4g} MiB" if name.endswith("_bytes") else str(value)

    def _leftover(self) -> str:
        left = () if self.exit is None else self.exit.left
        return f" Of its processes {len(left)} could not be killed: {', '.join(map(str, left))}." if left else ""
