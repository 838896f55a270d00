"""Enters the namespaces of the caller by their files in /proc."""

from __future__ import annotations

import os

from tests.hostile.attacking.kernel import NEW_MOUNT, checked, libc
from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    checked(libc.setns(os.open(f"/proc/{target.caller}/ns/mnt", os.O_RDONLY), NEW_MOUNT))
    return True
