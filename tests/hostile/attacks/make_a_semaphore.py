"""Leaves a System V semaphore that is there when it is gone."""

from __future__ import annotations

from tests.hostile.attacking.kernel import call, libc
from tests.hostile.attacking.target import Target

CREATE, REMOVE = 0o1000, 0


def attack(target: Target) -> bool:
    call("semget", target.key + 0x02000000, 1, CREATE | 0o666)
    return True


def seen(target: Target) -> bool:
    try:
        left = call("semget", target.key + 0x02000000, 0, 0)
    except OSError:
        return False
    libc.semctl(left, 0, REMOVE)
    return True
