"""Adds a file to its own venv that every later start would execute."""

from __future__ import annotations

from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    (target.venv / "lib/site-packages/planted.pth").write_text("import os")
    return True


def seen(target: Target) -> bool:
    return (target.venv / "lib/site-packages/planted.pth").exists()
