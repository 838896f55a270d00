"""Enters the namespaces of the caller by a descriptor of its process."""

from __future__ import annotations

import os

from tests.hostile.attacking.kernel import NEW_MOUNT, checked, libc
from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    checked(libc.setns(os.pidfd_open(target.caller), NEW_MOUNT))
    return True
