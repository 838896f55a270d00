"""Becomes root of a user namespace, where parts of the kernel are within reach that are root's otherwise."""

from __future__ import annotations

from tests.hostile.attacking.kernel import NEW_USER, checked, libc
from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    checked(libc.unshare(NEW_USER))
    return True
