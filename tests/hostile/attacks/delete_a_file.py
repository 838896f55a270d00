"""Deletes a file of the caller."""

from __future__ import annotations

from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    (target.home / "to-delete").unlink()
    return True


def seen(target: Target) -> bool:
    return not (target.home / "to-delete").exists()
