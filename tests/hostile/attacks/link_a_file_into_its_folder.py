"""Makes a hard link to a file of the caller in its own folder, where it may read and write."""

from __future__ import annotations

import os

from tests.hostile.attacking.target import Target, holds_secret


def attack(target: Target) -> bool:
    link = target.work / "hard"
    os.link(target.home / "notes", link)
    return holds_secret(link.read_text())
