"""Makes a file of the caller look as old as it likes."""

from __future__ import annotations

import os

from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    os.utime(target.home / ".netrc", (1, 1))
    return True


def seen(target: Target) -> bool:
    return (target.home / ".netrc").stat().st_mtime == 1
