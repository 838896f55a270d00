"""Mounts something, in namespaces of its own if need be."""

from __future__ import annotations

import ctypes

from tests.hostile.attacking.kernel import NEW_MOUNT, as_root_of_its_own, checked, libc
from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    as_root_of_its_own(NEW_MOUNT)
    checked(libc.mount(b"none", f"{target.private}/tmp".encode(), b"tmpfs", ctypes.c_ulong(0), None))
    return True
