"""Descriptors end at `limits.open_files`, and cannot be raised again by whoever is not root."""

from __future__ import annotations

from typing import get_args

import pytest

from runner.sandbox.machine import this_machine
from tests.confined import Caller
from tests.hostile.taking import take

CAP_SYS_RESOURCE = 24
OPEN = """
import os, resource
try:
    resource.setrlimit(resource.RLIMIT_NOFILE, (5000, 5000))
    print("raised")
    os._exit(0)
except (ValueError, OSError):
    pass
try:
    held = [os.open("/dev/null", os.O_RDONLY) for _ in range(500)]
    print("could")
except OSError as error:
    print(error.strerror)
"""


@pytest.mark.parametrize("caller", get_args(Caller))
def test_descriptors_end_at_the_limit(caller: Caller) -> None:
    told = take(caller, {"open_files": 256}, {"open": OPEN})
    for level, taken in told.taken.items():
        # root that stays root sets its limits as it likes, unless a container has taken that from it
        raised = level == "off" and caller == "root" and CAP_SYS_RESOURCE in this_machine().capabilities
        assert taken["open"].said == ("raised" if raised else "Too many open files"), level
