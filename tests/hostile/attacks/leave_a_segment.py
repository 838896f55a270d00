"""Leaves a System V memory segment that is there when it is gone."""

from __future__ import annotations

import os

from tests.hostile.attacking.kernel import call, libc, number
from tests.hostile.attacking.target import Target

CREATE, REMOVE = 0o1000, 0


def attack(target: Target) -> bool:
    call("shmget", target.key + 0x01000000, number(4096), CREATE | 0o666)
    return True


def seen(target: Target) -> bool:
    try:
        left = call("shmget", target.key + 0x01000000, number(0), 0)
    except OSError:
        return False
    libc.shmctl(left, REMOVE, None)
    return os.getpid() == target.caller
