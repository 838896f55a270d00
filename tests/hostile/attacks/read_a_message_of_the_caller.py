"""Takes a message out of a System V queue of the caller's."""

from __future__ import annotations

import ctypes

from tests.hostile.attacking.kernel import checked, libc
from tests.hostile.attacking.target import Target, holds_secret


def attack(target: Target) -> bool:
    queue = checked(libc.msgget(target.key, 0))
    buffer = ctypes.create_string_buffer(256)
    checked(libc.msgrcv(queue, buffer, ctypes.c_size_t(200), ctypes.c_long(0), 0))
    return holds_secret(buffer.raw)
