"""Has the removal of its folder delete what is the caller's, by links."""

from __future__ import annotations

from pathlib import Path

from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    for place in (target.work / "treasure", Path(target.private, "tmp", "treasure")):
        place.symlink_to(target.home / "treasure")
    return True


def seen(target: Target) -> bool:
    return not (target.home / "treasure" / "coin").exists()
