"""Opens a pseudo terminal."""

from __future__ import annotations

import os

from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY)
    return True
