"""Makes the caller the owner of a pipe, so that the kernel sends it a signal when something is to be read."""

from __future__ import annotations

import fcntl
import os

from tests.hostile.attacking.target import BY_DESCRIPTOR, Target, arrived

F_SETSIG = 10


def attack(target: Target) -> bool:
    reading, writing = os.pipe()
    fcntl.fcntl(reading, F_SETSIG, BY_DESCRIPTOR)
    fcntl.fcntl(reading, fcntl.F_SETOWN, target.caller)
    fcntl.fcntl(reading, fcntl.F_SETFL, os.O_ASYNC)
    os.write(writing, b"x")
    return True


def seen(target: Target) -> bool:
    return arrived(BY_DESCRIPTOR)
