"""Reads the command line of the caller, where careless programs have passwords."""

from __future__ import annotations

from pathlib import Path

from tests.hostile.attacking.target import Target, holds_secret


def attack(target: Target) -> bool:
    return holds_secret(Path(f"/proc/{target.caller}/cmdline").read_bytes())
