"""Asks where a symbolic link of the caller's leads."""

from __future__ import annotations

from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    return (target.home / "link").readlink().name == "notes"
