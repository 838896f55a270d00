"""Reads the memory of the caller through /proc."""

from __future__ import annotations

import os

from tests.hostile.attacking.target import SECRET, Target, holds_secret


def attack(target: Target) -> bool:
    memory = os.open(f"/proc/{target.caller}/mem", os.O_RDONLY)
    return holds_secret(os.pread(memory, len(SECRET), target.secret_address))
