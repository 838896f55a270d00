"""Leave a process behind, twice removed from the build and in a session of its own."""

from __future__ import annotations

import os
from typing import Any


def attack(places: dict[str, Any]) -> None:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            null = os.open("/dev/null", os.O_RDWR)
            for number in (0, 1, 2):
                os.dup2(null, number)
            os.execv("/bin/sleep", ["sleep", places["left"]])
        os._exit(0)
