"""Locks a file of the cache, so that whoever waits for it waits for ever."""

from __future__ import annotations

import fcntl

from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    with (target.cache / "venvs" / "other" / "manifest.json").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
