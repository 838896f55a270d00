"""Makes another folder its root."""

from __future__ import annotations

from tests.hostile.attacking.kernel import as_root_of_its_own, checked, libc
from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    as_root_of_its_own()
    checked(libc.chroot(target.private.encode()))
    return True
