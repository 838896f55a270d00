"""A fork bomb ends at `limits.processes`, and what held it is named where the kernel tells."""

from __future__ import annotations

from typing import get_args

import pytest

from runner.sandbox.cgroups import usable_groups
from tests.confined import Caller
from tests.hostile.taking import take

BOMB = """
import os, time
late = time.monotonic() + GRACE
while "benchmax-worker" not in open("/proc/self/cgroup").read() and time.monotonic() < late:
    time.sleep(0.001)
for number in range(2000):
    try:
        if os.fork() == 0:
            time.sleep(1000)
    except OSError as error:
        print(error.strerror)
        break
else:
    print("could")
os._exit(3)
"""


@pytest.mark.parametrize("caller", get_args(Caller))
def test_a_fork_bomb_ends_at_the_limit_and_leaves_nothing(caller: Caller) -> None:
    # a start does not wait for the group, so that the bomb has to
    group = caller == "root" and usable_groups().has("pids")
    told = take(caller, {"processes": 40}, {"bomb": BOMB.replace("GRACE", "5" if group else "0")})
    for level, taken in told.taken.items():
        found = taken["bomb"]
        held = "pids" in told.groups or level != "off" or caller == "ordinary"
        assert found.said == ("Resource temporarily unavailable" if held else "could"), level
        assert found.how == "exit code 3"
        assert found.reached == (("processes",) if "pids" in told.groups else ())
        assert not found.left
        # not held, or held together with others: then it is said
        assert any(text.startswith("processes: ") for text in told.not_limited[level]) == (
            "pids" not in told.groups and (caller == "ordinary" or level == "off")
        )
