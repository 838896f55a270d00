"""Reads a System V memory segment of the caller."""

from __future__ import annotations

import ctypes

from tests.hostile.attacking.kernel import call, checked, libc, number
from tests.hostile.attacking.target import SECRET, Target, holds_secret


def attack(target: Target) -> bool:
    segment = call("shmget", target.key, number(0), 0)
    libc.shmat.restype = ctypes.c_ssize_t
    return holds_secret(ctypes.string_at(checked(libc.shmat(segment, None, 0)), len(SECRET)))
