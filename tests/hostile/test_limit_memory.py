"""Memory ends at `limits.memory_bytes`: of each process everywhere, of all together where there are control groups."""

from __future__ import annotations

from typing import get_args

import pytest

from tests.confined import Caller
from tests.hostile.taking import MIB, take

ALONE = """
held = []
try:
    while True:
        held.append(bytearray(8 * 1024**2))
except MemoryError:
    print(f"no memory after {len(held) * 8 // 100 * 100} MiB")
    held.clear()
"""
TOGETHER = """
import os, select, time
reading, writing = os.pipe()
for _ in range(4):
    if os.fork() == 0:
        held = bytearray(64 * 1024**2)
        os.write(writing, b"x")
        time.sleep(1000)
have = dead = 0
while have + dead < 4:
    if select.select([reading], [], [], 0.02)[0]:
        have += len(os.read(reading, 4))
    while dead < 4 and os.waitpid(-1, os.WNOHANG)[0]:
        dead += 1
print(f"{have * 64} MiB")
os._exit(0)
"""


@pytest.mark.parametrize("caller", get_args(Caller))
def test_memory_ends_at_the_limit(caller: Caller) -> None:
    told = take(caller, {"memory_bytes": 150 * MIB}, {"alone": ALONE, "together": TOGETHER})
    for level, taken in told.taken.items():
        assert taken["alone"].said == "no memory after 100 MiB", level
        assert taken["alone"].how == "exit code 0"
        grouped = "memory" in told.groups
        if grouped:
            # the kernel ends the largest process of the group, and says so
            assert taken["together"].reached == ("memory_bytes",)
            assert taken["together"].said != "256 MiB"
        else:
            assert (taken["together"].said, taken["together"].reached) == ("256 MiB", ())
        assert any(text.startswith("memory: limited for each process") for text in told.not_limited[level]) != grouped
