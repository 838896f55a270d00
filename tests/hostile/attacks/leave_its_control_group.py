"""Opens the list by which it could move itself out of a control group that limits it."""

from __future__ import annotations

import os
from pathlib import Path

from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    first = ":pids:" in Path("/proc/self/cgroup").read_text()
    os.open("/sys/fs/cgroup/pids/cgroup.procs" if first else "/sys/fs/cgroup/cgroup.procs", os.O_WRONLY)
    return True
