"""Reads shared memory of the caller."""

from __future__ import annotations

from tests.hostile.attacking.target import Target, holds_secret


def attack(target: Target) -> bool:
    return holds_secret(target.shared_memory.read_text())
