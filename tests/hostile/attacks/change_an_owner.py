"""Gives a file of the caller to itself."""

from __future__ import annotations

import os

from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    os.chown(target.home / "notes", os.getuid(), os.getgid())
    return True
