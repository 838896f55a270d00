"""Puts a key into a keyring of the kernel's."""

from __future__ import annotations

import ctypes

from tests.hostile.attacking.kernel import call
from tests.hostile.attacking.target import Target

PROCESS_KEYRING = -2


def attack(target: Target) -> bool:
    call("add_key", b"user", target.name.encode(), b"x", ctypes.c_size_t(1), PROCESS_KEYRING)
    return True
