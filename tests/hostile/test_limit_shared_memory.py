"""Shared memory: bounded where a worker has its own, none where it has not, everybody's without a sandbox."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from tests.confined import Caller
from tests.hostile.taking import take

FILL = """
import os
name = f"/dev/shm/benchmax-taking-{os.getpid()}"
try:
    file = os.open(name, os.O_CREAT | os.O_RDWR)
    try:
        os.posix_fallocate(file, 0, 300 * 1024**2)
    finally:
        os.unlink(name)
    print("could")
except OSError as error:
    print(error.strerror)
"""


@pytest.mark.parametrize("caller", get_args(Caller))
def test_shared_memory_is_bounded_by_its_own_size(caller: Caller) -> None:
    told = take(caller, {}, {"fill": FILL})
    said = {level: taken["fill"].said for level, taken in told.taken.items()}
    expected = {
        "off": "could",
        "landlock": "No space left on device" if caller == "root" else "Permission denied",
        "namespaces": "No space left on device",
    }
    assert said == {level: expected[level] for level in said}
    assert not [*Path("/dev/shm").glob("benchmax-taking-*")]
