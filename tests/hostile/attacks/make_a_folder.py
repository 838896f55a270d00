"""Makes a folder in the caller's home."""

from __future__ import annotations

from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    (target.home / "made").mkdir()
    return True


def seen(target: Target) -> bool:
    return (target.home / "made").exists()
