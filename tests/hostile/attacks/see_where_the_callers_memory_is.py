"""Reads how the memory of the caller is laid out, which later attacks on it would need."""

from __future__ import annotations

from pathlib import Path

from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    return "[stack]" in Path(f"/proc/{target.caller}/maps").read_text()
