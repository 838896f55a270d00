"""Makes a system call by the numbers of the x32 ABI."""

from __future__ import annotations

import ctypes
import os

from tests.hostile.attacking.kernel import NotHereError, checked, libc
from tests.hostile.attacking.target import Target

X32, GETPID = 0x40000000, 39


def attack(target: Target) -> bool:
    if os.uname().machine != "x86_64":
        raise NotHereError
    return checked(libc.syscall(ctypes.c_long(X32 | GETPID))) == os.getpid()
