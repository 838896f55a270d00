"""The number of the user that a worker becomes when the caller is root: one that nobody else has.

A user of its own, and not `nobody`, whose other processes a worker could signal and whose files it could change; and a
limit on the number of processes counts all processes of a user.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Final

from runner.sandbox.machine import Machine

FIRST: Final = 1_900_000_000
COUNT: Final = 100_000_000
"""Users that no distribution, container engine or service manager gives out; drawn from, two are never equal."""

NOBODY: Final = 65534
"""Where those do not exist: in a container that has been given some thousand users only."""


def unprivileged_user(machine: Machine, draw: Callable[[int], int] = secrets.randbelow) -> int | None:
    """Return the user a worker is to become, or `None` where the caller is an ordinary user or cannot become another.

    Args:
        machine: The caller, and the users there are.
        draw: Returns a number from 0 up to its argument, without it.
    """
    if machine.uid != 0 or not machine.may_become:
        return None
    if machine.has_uid(FIRST) and machine.has_uid(FIRST + COUNT - 1):
        return FIRST + draw(COUNT)
    return NOBODY if machine.has_uid(NOBODY) else None
