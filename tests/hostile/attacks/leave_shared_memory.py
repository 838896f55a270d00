"""Leaves something in shared memory that is there when it is gone."""

from __future__ import annotations

from pathlib import Path

from tests.hostile.attacking.target import Target


def _place(target: Target) -> Path:
    return target.shared_memory.with_name(f"{target.name}-left")


def attack(target: Target) -> bool:
    _place(target).write_text("planted")
    return True


def seen(target: Target) -> bool:
    return _place(target).exists()
