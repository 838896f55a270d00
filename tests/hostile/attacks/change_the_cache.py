"""Vouches in the cache for a venv that is not whole."""

from __future__ import annotations

from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    (target.cache / "venvs/other/manifest.json").write_text("{}")
    return True


def seen(target: Target) -> bool:
    return (target.cache / "venvs/other/manifest.json").read_text() == "{}"
