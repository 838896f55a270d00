"""Puts another driver behind the terminal that it was handed."""

from __future__ import annotations

import fcntl
import struct
import termios

from tests.hostile.attacking.target import Target

ORDINARY = 0


def attack(target: Target) -> bool:
    # the one it has, should this work
    fcntl.ioctl(target.terminal, termios.TIOCSETD, struct.pack("@i", ORDINARY))
    return True
