"""Reads a file by way of the root of the caller."""

from __future__ import annotations

from pathlib import Path

from tests.hostile.attacking.target import Target, holds_secret


def attack(target: Target) -> bool:
    return holds_secret(Path(f"/proc/{target.caller}/root{target.home}/notes").read_text())
