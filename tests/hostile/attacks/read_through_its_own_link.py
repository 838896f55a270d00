"""Reads a file by way of a symbolic link in its own folder."""

from __future__ import annotations

from tests.hostile.attacking.target import Target, holds_secret


def attack(target: Target) -> bool:
    link = target.work / "link"
    link.symlink_to(target.home / "notes")
    return holds_secret(link.read_text())
