"""Kills what watches over it, so that a process it leaves behind is not found."""

from __future__ import annotations

import os
import signal

from tests.hostile.attacking.survivors import ended, leave_one
from tests.hostile.attacking.target import Target

ALONE = True
SECONDS = 1002


def attack(target: Target) -> bool:
    leave_one(target, SECONDS)
    os.kill(target.supervisor, signal.SIGKILL)
    return True


def seen(target: Target) -> bool:
    return ended(target, SECONDS)
