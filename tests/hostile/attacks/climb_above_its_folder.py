"""Reads a file by going up from its working directory."""

from __future__ import annotations

from pathlib import Path

from tests.hostile.attacking.target import Target, holds_secret


def attack(target: Target) -> bool:
    return holds_secret(Path("../../home/notes").read_text())
