"""Names of test cases that are the same in every process of a session."""

from __future__ import annotations

import re


def name_of(value: object) -> str:
    """Return the representation of a value without addresses in memory."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))
