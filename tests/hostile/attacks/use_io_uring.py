"""Has the kernel do its work by a queue, past filters of system calls."""

from __future__ import annotations

import ctypes

from tests.hostile.attacking.kernel import call
from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    call("io_uring_setup", 1, ctypes.create_string_buffer(120))
    return True
