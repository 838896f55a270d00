"""Restarts the machine."""

from __future__ import annotations

import errno

from tests.hostile.attacking.kernel import call
from tests.hostile.attacking.target import Target

NO_MAGIC = 0


def attack(target: Target) -> bool:
    try:
        # without the numbers that make it happen
        call("reboot", NO_MAGIC, NO_MAGIC, 0, None)
    except OSError as error:
        # past the permission
        if error.errno != errno.EINVAL:
            raise
    return True
