"""Loads a kernel to be started next."""

from __future__ import annotations

import errno

from tests.hostile.attacking.kernel import NotHereError, call, number
from tests.hostile.attacking.target import Target

UNKNOWN_FLAG = 1 << 14


def attack(target: Target) -> bool:
    try:
        call("kexec_load", 0, number(0), None, number(UNKNOWN_FLAG))
    except OSError as error:
        if error.errno == errno.ENOSYS:
            raise NotHereError from error
        # past the permission
        if error.errno != errno.EINVAL:
            raise
    return True
