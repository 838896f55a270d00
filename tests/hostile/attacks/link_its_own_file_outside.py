"""Makes a hard link to a file of its own in the caller's home."""

from __future__ import annotations

import os

from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    (target.work / "mine").touch()
    os.link(target.work / "mine", target.home / "mine")
    return True


def seen(target: Target) -> bool:
    return (target.home / "mine").exists()
