"""Gives the caller the lowest class of the scheduler."""

from __future__ import annotations

import os

from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    os.sched_setscheduler(target.caller, os.SCHED_BATCH, os.sched_param(0))
    return True


def seen(target: Target) -> bool:
    return os.sched_getscheduler(0) == os.SCHED_BATCH
