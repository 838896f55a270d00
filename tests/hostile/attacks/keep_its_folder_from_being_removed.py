"""Makes a folder that cannot be looked into, so that what is in it stays when the program is gone."""

from __future__ import annotations

from pathlib import Path

from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    folder = Path(target.private, "tmp", "shut")
    folder.mkdir()
    (folder / "kept").touch()
    folder.chmod(0)
    return True


def seen(target: Target) -> bool:
    left = Path(target.private, "tmp", "shut")
    if not left.exists():
        return False
    left.chmod(0o700)
    return True
