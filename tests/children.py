"""Child processes of the process that runs the tests."""

from __future__ import annotations

import contextlib
from pathlib import Path


def children() -> set[int]:
    """Return the process ids of the children of all threads."""
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        # a thread may end between the listing and the reading
        with contextlib.suppress(OSError):
            found.update(int(pid) for pid in (task / "children").read_text().split())
    return found
