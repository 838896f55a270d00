"""Makes a device node in its own folder."""

from __future__ import annotations

import os
import stat

from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    os.mknod(target.work / "memory", stat.S_IFCHR | 0o600, os.makedev(1, 1))
    return True
