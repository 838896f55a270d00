"""What all tests share: nothing may be left behind, and what is missing is said."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.children import children

PATIENCE_S = 5.0
"""How long something that is ending may take to be gone; only a leak waits that long."""


@pytest.fixture(autouse=True)
def nothing_is_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that leaves a child process or a descriptor of this process behind."""
    before = _descriptors()
    had = children()
    yield
    deadline = time.monotonic() + PATIENCE_S
    while True:
        left = children() - had
        opened = {number: target for number, target in _descriptors().items() if before.get(number) != target}
        if not left and not opened:
            return
        if time.monotonic() >= deadline:
            break
        gc.collect()
        time.sleep(0.02)
    if left:
        pytest.fail(f"child processes left behind: {[_command(pid) for pid in sorted(left)]}")
    if request.node.get_closest_marker("keeps_descriptors") is None:
        pytest.fail(f"descriptors left open: {opened}")


def require(found: object, what: str) -> None:
    """Skip a test for want of something, or fail it where everything is required."""
    if found:
        return
    if os.environ.get("REQUIRE_ALL") == "1":
        pytest.fail(f"{what} is missing, and REQUIRE_ALL=1 asks for it")
    pytest.skip(f"{what} is missing")


def _descriptors() -> dict[int, str]:
    found = {}
    for entry in Path("/proc/self/fd").iterdir():
        try:
            target = str(entry.readlink())
        except OSError:
            continue
        # session-wide fixtures and the test runner's own log files are opened when first needed
        if target.startswith(("socket:", "pipe:", "/memfd:", "anon_inode:")):
            found[int(entry.name)] = target
    return found


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except OSError:
        return f"pid {pid}"
