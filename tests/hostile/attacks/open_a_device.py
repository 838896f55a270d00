"""Opens a device that is not for programs."""

from __future__ import annotations

import os

from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    os.open("/dev/kmsg", os.O_RDWR)
    return True
