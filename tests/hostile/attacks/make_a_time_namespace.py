"""Makes a namespace in which clocks tell another time."""

from __future__ import annotations

from tests.hostile.attacking.kernel import NEW_TIME, NEW_USER, checked, libc
from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    checked(libc.unshare(NEW_USER | NEW_TIME))
    return True
