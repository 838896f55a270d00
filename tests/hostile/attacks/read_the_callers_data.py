"""Reads data of the caller that it was given no copy of."""

from __future__ import annotations

from tests.hostile.attacking.target import Target, holds_secret


def attack(target: Target) -> bool:
    return holds_secret((target.data / "rows.jsonl").read_text())
