"""Becomes the one to whom processes without a parent are given, so that its supervisor does not get them."""

from __future__ import annotations

from tests.hostile.attacking.kernel import checked, libc
from tests.hostile.attacking.survivors import ended, leave_one
from tests.hostile.attacking.target import Target

SET_CHILD_SUBREAPER = 36
SECONDS = 1003


def attack(target: Target) -> bool:
    checked(libc.prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0))
    leave_one(target, SECONDS)
    return True


def seen(target: Target) -> bool:
    return ended(target, SECONDS)
