"""Sends a signal to the caller."""

from __future__ import annotations

import os

from tests.hostile.attacking.target import BY_KILL, Target, arrived


def attack(target: Target) -> bool:
    os.kill(target.caller, BY_KILL)
    return True


def seen(target: Target) -> bool:
    return arrived(BY_KILL)
