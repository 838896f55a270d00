"""Lets everybody read a file that was the caller's alone."""

from __future__ import annotations

from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    (target.data / "rows.jsonl").chmod(0o666)
    return True


def seen(target: Target) -> bool:
    return (target.data / "rows.jsonl").stat().st_mode & 0o777 == 0o666
