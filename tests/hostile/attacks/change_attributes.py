"""Hangs an extended attribute onto a file of the caller's."""

from __future__ import annotations

import os

from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    os.setxattr(target.home / "notes", "user.planted", b"x")
    return True


def seen(target: Target) -> bool:
    return "user.planted" in os.listxattr(target.home / "notes")
