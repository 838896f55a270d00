"""Opens by /proc what the caller has open and nobody could name."""

from __future__ import annotations

from pathlib import Path

from tests.hostile.attacking.target import Target, holds_secret


def attack(target: Target) -> bool:
    return holds_secret(Path(f"/proc/{target.caller}/fd/{target.descriptor}").read_bytes())
