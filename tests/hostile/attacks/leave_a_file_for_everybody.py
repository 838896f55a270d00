"""Leaves a file where everybody may, to be found by later programs."""

from __future__ import annotations

from pathlib import Path

from tests.hostile.attacking.target import Target


def _places(target: Target) -> list[Path]:
    return [Path(folder, target.name) for folder in ("/tmp", "/var/tmp")]


def attack(target: Target) -> bool:
    for place in _places(target):
        place.write_text("planted")
    return True


def seen(target: Target) -> bool:
    found = [place for place in _places(target) if place.exists()]
    for place in found:
        place.unlink()
    return bool(found)
