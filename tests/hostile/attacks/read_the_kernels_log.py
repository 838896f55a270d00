"""Reads the log of the kernel, with addresses and what other programs did."""

from __future__ import annotations

import ctypes

from tests.hostile.attacking.kernel import call
from tests.hostile.attacking.target import Target

READ_ALL = 3


def attack(target: Target) -> bool:
    return call("syslog", READ_ALL, ctypes.create_string_buffer(4096), 4096) >= 0
