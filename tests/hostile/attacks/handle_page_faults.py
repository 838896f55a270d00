"""Halts the kernel wherever it touches its memory, as exploits of races do."""

from __future__ import annotations

from tests.hostile.attacking.kernel import call
from tests.hostile.attacking.target import Target

USER_MODE_ONLY = 1


def attack(target: Target) -> bool:
    call("userfaultfd", USER_MODE_ONLY)
    return True
