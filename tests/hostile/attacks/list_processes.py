"""Looks which other processes there are."""

from __future__ import annotations

from pathlib import Path

from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    return str(target.caller) in {entry.name for entry in Path("/proc").iterdir()}
