"""Reads the file with everybody's password hashes."""

from __future__ import annotations

from pathlib import Path

from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    return bool(Path("/etc/shadow").read_bytes())
