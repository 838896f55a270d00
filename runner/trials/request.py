"""What one trial needs, checked against what there is for it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TypeVar

from runner.limits import Limits


class TrialRefusedError(Exception):
    """Raised when a trial gets no sandbox; the text says why, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRequest:
    """What one trial needs; `None` is what the limits leave.

    Args:
        rollout_id: The rollout that the trial belongs to.
        cpus: Processors' worth of time at most.
        memory_bytes: Memory at most.
        disk_bytes: Disk space at most, of all that it writes.
        network: Whether its commands may use the network, as far as the worker may.
        call: The worker's call that the rollout is part of, if there is a worker.
    """

    rollout_id: str
    cpus: float | None = None
    memory_bytes: int | None = None
    disk_bytes: int | None = None
    network: bool = False
    call: int | None = None


def bounded_limits(request: TrialRequest, limits: Limits) -> Limits:
    """Return the limits of one sandbox: those for trials, made smaller where the trial needs less.

    Raises:
        TrialRefusedError: it needs nothing that a number could say.
    """
    for name in ("cpus", "memory_bytes", "disk_bytes"):
        value = getattr(request, name)
        if value is not None and not (value > 0 and math.isfinite(value)):
            raise TrialRefusedError(
                f"a trial sandbox cannot be opened: {name} is {value!r}. Ask for more than nothing."
            )
    return replace(
        limits,
        cpus=_lesser(request.cpus, limits.cpus),
        memory_bytes=_lesser(request.memory_bytes, limits.trial_memory_bytes),
        disk_bytes=_lesser(request.disk_bytes, limits.trial_disk_bytes),
        processes=limits.trial_processes,
    )


_Number = TypeVar("_Number", int, float)


def _lesser(one: _Number | None, other: _Number | None) -> _Number | None:
    return min((value for value in (one, other) if value is not None), default=None)
