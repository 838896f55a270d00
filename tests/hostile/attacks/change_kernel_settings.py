"""Has the kernel start a program of its choice when another one crashes."""

from __future__ import annotations

from pathlib import Path

from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    # what it is already, should this work
    pattern = Path("/proc/sys/kernel/core_pattern")
    pattern.write_bytes(pattern.read_bytes())
    return True
