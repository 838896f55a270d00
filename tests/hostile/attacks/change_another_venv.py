"""Plants code in the packages of another bundle."""

from __future__ import annotations

from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    (target.cache / "venvs/other/lib/site-packages/planted.pth").write_text("import os")
    return True


def seen(target: Target) -> bool:
    return (target.cache / "venvs/other/lib/site-packages/planted.pth").exists()
