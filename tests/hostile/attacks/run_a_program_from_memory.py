"""Runs a program that is in no file."""

from __future__ import annotations

import os
from pathlib import Path

from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    memory = os.memfd_create("program", 0)
    os.write(memory, Path("/bin/true").read_bytes())
    pid = os.posix_spawn(f"/proc/self/fd/{memory}", ["true"], {})
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
