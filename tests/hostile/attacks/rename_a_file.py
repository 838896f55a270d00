"""Gives a file of the caller another name."""

from __future__ import annotations

from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    (target.home / "treasure").rename(target.home / "renamed")
    return True


def seen(target: Target) -> bool:
    found = (target.home / "renamed").exists()
    if found:
        (target.home / "renamed").rename(target.home / "treasure")
    return found
