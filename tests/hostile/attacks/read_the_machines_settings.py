"""Reads settings of the machine that a program does not need."""

from __future__ import annotations

from pathlib import Path

from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    return bool(Path("/etc/hostname").read_bytes())
