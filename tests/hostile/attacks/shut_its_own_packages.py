"""Takes the right to read its own venv from everybody, so that no later run finds it whole."""

from __future__ import annotations

from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    (target.venv / "lib").chmod(0o700)
    return True


def seen(target: Target) -> bool:
    return (target.venv / "lib").stat().st_mode & 0o777 == 0o700
