"""Reads a file by way of the root of the process that has started it: inside, the first of its namespace."""

from __future__ import annotations

import os
from pathlib import Path

from tests.hostile.attacking.target import Target, holds_secret


def attack(target: Target) -> bool:
    # this is a process of the program's, whose own parent comes from outside
    status = Path(f"/proc/{os.getppid()}/status").read_text()
    outer = next(line.split()[1] for line in status.splitlines() if line.startswith("PPid:"))
    return holds_secret(Path(f"/proc/{outer}/root{target.home}/notes").read_text())
