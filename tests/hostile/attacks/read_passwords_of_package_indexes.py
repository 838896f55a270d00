"""Reads the passwords with which the caller fetches packages."""

from __future__ import annotations

from tests.hostile.attacking.target import Target, holds_secret


def attack(target: Target) -> bool:
    return holds_secret((target.home / ".netrc").read_text())
