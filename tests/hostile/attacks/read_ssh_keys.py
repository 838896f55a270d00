"""Reads a private key of the caller."""

from __future__ import annotations

from tests.hostile.attacking.target import Target, holds_secret


def attack(target: Target) -> bool:
    return holds_secret((target.home / ".ssh" / "id_ed25519").read_text())
