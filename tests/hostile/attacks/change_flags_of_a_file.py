"""Excludes a file of the caller from backups, without opening it."""

from __future__ import annotations

import errno
import struct

from tests.hostile.attacking.kernel import NotHereError, call, number
from tests.hostile.attacking.target import Target

CURRENT_FOLDER, NO_DUMP = -100, 0x80


def attack(target: Target) -> bool:
    # struct file_attr: flags, extent size, extents, project, extent size of copies
    attributes = struct.pack("=Q4I", NO_DUMP, 0, 0, 0, 0)
    path = bytes(target.home / "notes")
    try:
        call("file_setattr", CURRENT_FOLDER, path, attributes, number(len(attributes)), 0)
    except OSError as error:
        if error.errno == errno.ENOSYS:
            raise NotHereError("Linux 6.17") from error
        raise
    return True
