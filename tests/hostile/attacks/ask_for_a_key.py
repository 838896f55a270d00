"""Asks the kernel for somebody's key."""

from __future__ import annotations

import errno

from tests.hostile.attacking.kernel import call
from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    try:
        call("request_key", b"user", target.name.encode(), None, 0)
    except OSError as error:
        # past the permission: there is none of that name
        if error.errno != errno.ENOKEY:
            raise
    return True
