"""Reads what another worker of the same caller is at."""

from __future__ import annotations

from tests.hostile.attacking.target import Target, holds_secret


def attack(target: Target) -> bool:
    return holds_secret((target.neighbour / "answer").read_text())
