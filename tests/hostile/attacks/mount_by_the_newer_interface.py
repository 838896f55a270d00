"""Prepares a mount by the newer system calls."""

from __future__ import annotations

from tests.hostile.attacking.kernel import NEW_MOUNT, as_root_of_its_own, call
from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    as_root_of_its_own(NEW_MOUNT)
    call("fsopen", b"tmpfs", 0)
    return True
