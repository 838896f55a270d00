"""Reads the environment of the caller, where keys of providers usually are."""

from __future__ import annotations

from pathlib import Path

from tests.hostile.attacking.target import Target, holds_secret


def attack(target: Target) -> bool:
    return holds_secret(Path(f"/proc/{target.caller}/environ").read_bytes())
