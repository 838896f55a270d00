"""Takes all processors but one away from the caller."""

from __future__ import annotations

import os

from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    os.sched_setaffinity(target.caller, {min(os.sched_getaffinity(0))})
    return True
