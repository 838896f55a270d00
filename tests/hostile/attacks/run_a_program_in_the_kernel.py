"""Loads something into the kernel's own virtual machine."""

from __future__ import annotations

import struct

from tests.hostile.attacking.kernel import call
from tests.hostile.attacking.target import Target

MAP_CREATE, MAP_ARRAY = 0, 2


def attack(target: Target) -> bool:
    # kind, size of a key, size of a value, number of entries
    attributes = struct.pack("=4I", MAP_CREATE + MAP_ARRAY, 4, 8, 1) + bytes(112)
    call("bpf", MAP_CREATE, attributes, len(attributes))
    return True
