"""Leaves a process behind that is in nobody's session and nobody's child."""

from __future__ import annotations

from tests.hostile.attacking.survivors import ended, leave_one
from tests.hostile.attacking.target import Target

SECONDS = 1001


def attack(target: Target) -> bool:
    leave_one(target, SECONDS)
    return True


def seen(target: Target) -> bool:
    return ended(target, SECONDS)
