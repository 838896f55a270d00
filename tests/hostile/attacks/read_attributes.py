"""Reads an extended attribute of a file of the caller's."""

from __future__ import annotations

import os

from tests.hostile.attacking.target import Target, holds_secret


def attack(target: Target) -> bool:
    return holds_secret(os.getxattr(target.home / "notes", "user.origin"))
