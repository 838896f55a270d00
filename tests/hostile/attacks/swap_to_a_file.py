"""Has the kernel swap memory to a file of its choice."""

from __future__ import annotations

import errno

from tests.hostile.attacking.kernel import NotHereError, checked, libc
from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    try:
        checked(libc.swapon(f"{target.work}/swap".encode(), 0))
    except OSError as error:
        if error.errno == errno.ENOSYS:
            raise NotHereError from error
        # past the permission: there is no such file
        if error.errno != errno.ENOENT:
            raise
    return True
