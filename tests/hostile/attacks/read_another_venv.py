"""Reads the packages of another bundle."""

from __future__ import annotations

from tests.hostile.attacking.target import Target, holds_secret


def attack(target: Target) -> bool:
    return holds_secret((target.cache / "venvs/other/lib/site-packages/other.py").read_text())
