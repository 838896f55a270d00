"""Looks what there is in the caller's home."""

from __future__ import annotations

from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    return target.home / "notes" in set(target.home.iterdir())
