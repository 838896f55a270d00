"""Output without end is read and thrown away, but for its beginning and its end."""

from __future__ import annotations

from typing import get_args

import pytest

from tests.confined import Caller
from tests.hostile.taking import take

FLOOD = """
import os
for _ in range(200):
    os.write(1, b"x" * 100_000)
print()
print("the end")
"""


@pytest.mark.parametrize("caller", get_args(Caller))
def test_output_is_kept_up_to_the_limit(caller: Caller) -> None:
    told = take(caller, {"output_bytes": 10_000}, {"flood": FLOOD})
    for level, taken in told.taken.items():
        assert (taken["flood"].how, taken["flood"].said) == ("exit code 0", "the end"), level
        assert taken["flood"].dropped == 20_000_000 + len("\nthe end\n") - 10_000
