"""Looks for the caller's keys in its own environment."""

from __future__ import annotations

import os

from tests.hostile.attacking.target import Target, holds_secret


def attack(target: Target) -> bool:
    return holds_secret(str(dict(os.environ)))
