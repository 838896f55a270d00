"""Looks at the table of its segments, a corner of the kernel with a history."""

from __future__ import annotations

import ctypes

from tests.hostile.attacking.kernel import call, number
from tests.hostile.attacking.target import Target

READ = 0


def attack(target: Target) -> bool:
    return call("modify_ldt", READ, ctypes.create_string_buffer(64), number(64)) >= 0
