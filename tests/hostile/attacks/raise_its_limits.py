"""Allows itself more than it was limited to."""

from __future__ import annotations

import resource
import struct

from tests.hostile.attacking.kernel import checked, libc
from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
    checked(libc.setrlimit(resource.RLIMIT_FSIZE, struct.pack("@2L", 8192, 8192)))
    return True
