"""Sends a signal to the process group of the caller."""

from __future__ import annotations

import os

from tests.hostile.attacking.target import BY_GROUP, Target, arrived


def attack(target: Target) -> bool:
    # the caller leads a session, so that its group has its number
    os.killpg(target.caller, BY_GROUP)
    return True


def seen(target: Target) -> bool:
    return arrived(BY_GROUP)
