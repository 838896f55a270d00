"""Types a command into the terminal that it was handed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import termios

from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    with contextlib.suppress(PermissionError):
        os.setsid()
    fcntl.ioctl(target.terminal, termios.TIOCSCTTY, 0)
    fcntl.ioctl(target.terminal, termios.TIOCSTI, b"x")
    return True
