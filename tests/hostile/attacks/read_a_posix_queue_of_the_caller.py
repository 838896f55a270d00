"""Takes a message out of a POSIX queue of the caller's."""

from __future__ import annotations

import ctypes
import os

from tests.hostile.attacking.kernel import call, checked, libc
from tests.hostile.attacking.target import Target, holds_secret


def attack(target: Target) -> bool:
    queue = call("mq_open", target.name.encode(), os.O_RDONLY, 0, None)
    buffer = ctypes.create_string_buffer(8192)
    checked(libc.mq_receive(queue, buffer, ctypes.c_size_t(8192), None))
    return holds_secret(buffer.raw)
