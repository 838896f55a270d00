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

RANGES_FIRST: Final = 2_000_000_000
RANGES_COUNT: Final = 140_000_000
"""Users from which ranges are drawn, one of `RANGE` for each sandbox with a root of its own; below 2^31, since some
programs take larger numbers for negative ones, and none of them a worker's."""

RANGE: Final = 65_536
"""Users of such a sandbox: all that a system of its own gives out, `nobody` included."""


def unprivileged_range(machine: Machine, draw: Callable[[int], int] = secrets.randbelow) -> int | None:
    """Return the first of `RANGE` users that a sandbox's users are to be, or `None` where the caller has no such.

    Two ranges may overlap, their first users are never equal; what has the same number in two sandboxes is kept apart
    by their namespaces.

    Args:
        machine: The caller, and the users there are.
        draw: Returns a number from 0 up to its argument, without it.
    """
    last = RANGES_FIRST + RANGES_COUNT - 1
    if machine.uid != 0 or not (machine.may_become and machine.may_mount):
        return None
    if not machine.has_uid(RANGES_FIRST) or not machine.has_uid(last):
        return None
    return RANGES_FIRST + draw(RANGES_COUNT - RANGE)


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
