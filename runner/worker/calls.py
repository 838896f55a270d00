"""Calls in flight in this worker, and which of them some code runs for."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from ..protocol import ROLLOUT_TIMEOUT


@dataclass(slots=True)
class Deadline:
    """A deadline that passed: the reason and the text its rollouts end with."""

    reason: str
    message: str


@dataclass(slots=True)
class CallState:
    """One call in flight: its task, and its rollouts that have not ended.

    `pending` are those that have yet to run or still do; `running` the tasks of those that do; `transcripts` their
    messages so far, the live lists, as far as the environment shows them; `seconds` says how long those ran that have
    ended and of which the caller was not told yet.
    """

    call: int
    rollouts: frozenset[str] = frozenset()
    pending: set[str] = field(default_factory=set)
    running: dict[str, asyncio.Task[object]] = field(default_factory=dict)
    transcripts: dict[str, list[Any]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    expired: dict[str, Deadline] = field(default_factory=dict)
    scoring_expired: Deadline | None = None
    task: asyncio.Task[None] | None = None
    over: bool = False
    """Whether it was answered: what still runs in its context belongs to no call any more."""

    def expire(self, deadline: Deadline) -> None:
        """Fail every rollout that runs or has yet to; with none running, stop what the call does instead."""
        if deadline.reason == ROLLOUT_TIMEOUT and self.rollouts and not self.pending:
            # they have all ended, which the caller will read in a moment; scoring has a deadline of its own
            return
        if self.running:
            for rollout_id in self.pending - self.expired.keys():
                self.expired[rollout_id] = deadline
                if rollout_id in self.running:
                    self.running[rollout_id].cancel()
            return
        self.scoring_expired = deadline
        if self.task is not None:
            self.task.cancel()


CURRENT_CALL: ContextVar[CallState | None] = ContextVar("benchmax_runner_call", default=None)
"""Set in a call's own task, hence in everything it starts."""
