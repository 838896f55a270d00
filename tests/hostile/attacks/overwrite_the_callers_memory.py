"""Changes memory of the caller by a system call."""

from __future__ import annotations

import ctypes
import struct

from tests.hostile.attacking.kernel import call
from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    text = ctypes.create_string_buffer(b"by call!", 8)
    local = struct.pack("@PN", ctypes.addressof(text), 8)
    remote = struct.pack("@PN", target.scratch_address + 8, 8)
    return call("process_vm_writev", target.caller, local, 1, remote, 1, 0) == 8


def seen(target: Target) -> bool:
    return ctypes.string_at(target.scratch_address + 8, 8) == b"by call!"
