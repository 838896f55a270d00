"""Lowers the priority of the caller."""

from __future__ import annotations

import os

from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    os.setpriority(os.PRIO_PROCESS, target.caller, target.priority + 1)
    return True


def seen(target: Target) -> bool:
    return os.getpriority(os.PRIO_PROCESS, 0) == target.priority + 1
