"""Looks through all descriptors it was started with."""

from __future__ import annotations

import os
from pathlib import Path

from tests.hostile.attacking.target import Target


def attack(target: Target) -> bool:
    links = (entry for entry in Path("/proc/self/fd").iterdir() if entry.exists())
    hidden = [entry for entry in links if str(entry.readlink()).startswith("/memfd:hidden")]
    return any(os.pread(int(entry.name), 100, 0) for entry in hidden)
