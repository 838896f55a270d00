"""Lowers the priority of all processes in the caller's group."""

from __future__ import annotations

import os

from tests.hostile.attacking.target import Target

ALONE = True


def attack(target: Target) -> bool:
    os.setpriority(os.PRIO_PGRP, target.caller, target.priority + 2)
    return True


def seen(target: Target) -> bool:
    return os.getpriority(os.PRIO_PROCESS, 0) == target.priority + 2
