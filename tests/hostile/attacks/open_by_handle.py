"""Opens a file by the number of its inode, past all folders above it."""

from __future__ import annotations

import ctypes
import os
import struct

from tests.hostile.attacking.kernel import call
from tests.hostile.attacking.target import Target, holds_secret

CURRENT_FOLDER = -100


def attack(target: Target) -> bool:
    handle = ctypes.create_string_buffer(struct.pack("=I", 128) + bytes(132))
    mount = ctypes.c_int()
    call("name_to_handle_at", CURRENT_FOLDER, bytes(target.home / "notes"), handle, ctypes.byref(mount), 0)
    place = os.open(target.work, os.O_RDONLY)
    return holds_secret(os.pread(call("open_by_handle_at", place, handle, os.O_RDONLY), 100, 0))
