"""Takes away the mounts that hide what is below them."""

from __future__ import annotations

import errno

from tests.hostile.attacking.kernel import NEW_MOUNT, as_root_of_its_own, checked, libc
from tests.hostile.attacking.target import Target

DETACH = 2


def attack(target: Target) -> bool:
    as_root_of_its_own(NEW_MOUNT)
    try:
        checked(libc.umount2(bytes(target.home), DETACH))
    except OSError as error:
        # past the permission: nothing is mounted there
        if error.errno != errno.EINVAL:
            raise
    return True
