"""Reaches devices past the kernel."""

from __future__ import annotations

from tests.hostile.attacking.kernel import call
from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    call("iopl", 3)
    return True
