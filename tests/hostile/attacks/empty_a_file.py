"""Cuts off the contents of a file of the caller."""

from __future__ import annotations

import os

from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    os.truncate(target.home / "link", 4096)
    return True


def seen(target: Target) -> bool:
    return (target.home / "notes").stat().st_size == 4096
