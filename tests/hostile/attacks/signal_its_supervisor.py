"""Sends a signal to the process that watches over it."""

from __future__ import annotations

import os
import signal

from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    # one that nobody minds
    os.kill(target.supervisor, signal.SIGWINCH)
    return True
