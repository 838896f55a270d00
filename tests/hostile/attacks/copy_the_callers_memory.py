"""Copies memory of the caller by a system call."""

from __future__ import annotations

import ctypes
import struct

from tests.hostile.attacking.kernel import call
from tests.hostile.attacking.target import SECRET, Target, holds_secret


def attack(target: Target) -> bool:
    buffer = ctypes.create_string_buffer(len(SECRET))
    local = struct.pack("@PN", ctypes.addressof(buffer), len(SECRET))
    remote = struct.pack("@PN", target.secret_address, len(SECRET))
    call("process_vm_readv", target.caller, local, 1, remote, 1, 0)
    return holds_secret(buffer.raw)
