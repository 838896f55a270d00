"""Opens a performance counter."""

from __future__ import annotations

import struct

from tests.hostile.attacking.kernel import call
from tests.hostile.attacking.target import Target

SOFTWARE, TASK_CLOCK, NOT_THE_KERNEL = 1, 1, 1 << 5 | 1 << 6


def attack(target: Target) -> bool:
    # struct perf_event_attr: kind, size, what, period, sample, read, flags
    attributes = struct.pack("=2I5Q", SOFTWARE, 112, TASK_CLOCK, 0, 0, 0, NOT_THE_KERNEL) + bytes(64)
    call("perf_event_open", attributes, 0, -1, -1, 0)
    return True
