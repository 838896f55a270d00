"""Attaches to the caller as a debugger does."""

from __future__ import annotations

from tests.hostile.attacking.kernel import call
from tests.hostile.attacking.target import Target

SEIZE = 0x4206


def attack(target: Target) -> bool:
    # does not stop it
    call("ptrace", SEIZE, target.caller, None, None)
    return True
