"""Uses the call that steers the machine's clock."""

from __future__ import annotations

import ctypes

from tests.hostile.attacking.kernel import call
from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    # all zero: nothing is changed
    return call("adjtimex", ctypes.create_string_buffer(256)) >= 0
