"""Exchanges the root of its mount namespace for another one."""

from __future__ import annotations

import ctypes

from tests.hostile.attacking.kernel import NEW_MOUNT, as_root_of_its_own, call, checked, libc
from tests.hostile.attacking.target import Target

BIND, PRIVATE = 4096, 16384 | 1 << 18


def attack(target: Target) -> bool:
    as_root_of_its_own(NEW_MOUNT)
    place = f"{target.private}/tmp".encode()
    libc.mount(None, b"/", None, ctypes.c_ulong(PRIVATE), None)
    libc.mount(place, place, None, ctypes.c_ulong(BIND), None)
    checked(libc.chdir(place))
    call("pivot_root", b".", b".")
    return True
