"""Asks for size and times of a file of the caller whose name it knows."""

from __future__ import annotations

from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    return (target.home / "notes").stat().st_size > 0
