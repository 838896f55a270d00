"""What provisioning says while it works: phases with the time passed, for a command line or a log."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Phase = Literal["interpreter", "resolve", "install", "compile", "cached"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvisionEvent:
    """One step of provisioning.

    Args:
        phase: What is being done: `interpreter`, `resolve`, `install` and `compile` in this order for a new venv;
            `cached` alone, after `interpreter`, when the venv existed.
        message: One line for a person.
        elapsed_s: Seconds since provisioning began.
    """

    phase: Phase
    message: str
    elapsed_s: float


class Progress:
    """Counts the time of one provisioning and hands events to whoever listens."""

    def __init__(self, on_event: Callable[[ProvisionEvent], None] | None) -> None:
        self._on_event = on_event
        self._begun = time.monotonic()

    @property
    def elapsed_s(self) -> float:
        """Seconds since provisioning began."""
        return time.monotonic() - self._begun

    def tell(self, phase: Phase, message: str) -> None:
        """Report one step; what the listener raises reaches the caller of provisioning."""
        if self._on_event is not None:
            self._on_event(ProvisionEvent(phase=phase, message=message, elapsed_s=self.elapsed_s))
