"""Leaves a file in the caller's home."""

from __future__ import annotations

from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    (target.home / ".bashrc").write_text("echo planted")
    return True


def seen(target: Target) -> bool:
    return (target.home / ".bashrc").exists()
