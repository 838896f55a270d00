"""Becomes another user."""

from __future__ import annotations

import os

from tests.hostile.attacking.target import Target

NOBODY = 65534


def attack(target: Target) -> bool:
    os.setresuid(NOBODY, NOBODY, NOBODY)
    return True
