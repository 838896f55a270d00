"""Takes a module out of the kernel."""

from __future__ import annotations

import errno

from tests.hostile.attacking.kernel import NotHereError, call
from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    try:
        call("delete_module", target.name.encode(), 0)
    except OSError as error:
        if error.errno == errno.ENOSYS:
            raise NotHereError from error
        # past the permission: there is none of that name
        if error.errno != errno.ENOENT:
            raise
    return True
