"""Opens the memory of the process that has started it for writing: inside, the first of its namespace."""

from __future__ import annotations

import os
from pathlib import Path

from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    # this is a process of the program's, whose own parent comes from outside
    status = Path(f"/proc/{os.getppid()}/status").read_text()
    above = next(line.split()[1] for line in status.splitlines() if line.startswith("PPid:"))
    os.open(f"/proc/{above}/mem", os.O_RDWR)
    return True
