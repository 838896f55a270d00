"""Gives the caller the lowest class for reading and writing."""

from __future__ import annotations

from tests.hostile.attacking.kernel import call
from tests.hostile.attacking.target import Target

WHO_PROCESS, CLASS_IDLE = 1, 3 << 13


def attack(target: Target) -> bool:
    call("ioprio_set", WHO_PROCESS, target.caller, CLASS_IDLE)
    return True
