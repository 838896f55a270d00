"""Changes the memory of the caller through /proc."""

from __future__ import annotations

import ctypes
import os

from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    memory = os.open(f"/proc/{target.caller}/mem", os.O_RDWR)
    return os.pwrite(memory, b"by /proc", target.scratch_address) == 8


def seen(target: Target) -> bool:
    return ctypes.string_at(target.scratch_address, 8) == b"by /proc"
