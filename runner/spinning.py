"""Keeps an event loop awake for a moment when what it waits for will be there sooner than it could fall asleep.

Putting a processor to sleep and waking it again takes longer than a short call does. So where one call is made at a
time and the last few were answered at once, the loop turns until the next answer is there. Where they were not, or an
answer does not come as soon as was thought, it sleeps: code that waits for a model never sees any of this.

Used at both ends of a channel, so this file is shipped into the worker.
"""

from __future__ import annotations

import asyncio
import os
from typing import Final

SPIN_S: Final = 0.0003
"""How long a loop turns at most; about what two wake-ups take, so that little is lost when it was in vain."""

QUICK: Final = 4
"""Answers in a row that came within that time before the next one is waited for like this."""

PENALTY: Final = 16
"""Quick answers that have to come first once one was waited for in vain: somebody else needs the processor."""


class Spin:
    """What one end waits for, one thing at a time. Belongs to the event loop that it is made on."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._quick = 0
        # on a single processor it would keep from running what it waits for
        self._enough = QUICK if len(os.sched_getaffinity(0)) > 1 else None
        self._since: float | None = None

    def begin(self) -> None:
        """Something is waited for from now on."""
        self._since = self._loop.time()
        if self._enough is not None and self._quick >= self._enough:
            self._loop.call_soon(self._turn, self._since)

    def end(self) -> None:
        """It is there, or is not waited for any more. Harmless twice."""
        if self._since is None:
            return
        if self._loop.time() - self._since > SPIN_S:
            self._quick = min(self._quick, 0)
        elif self._quick < QUICK:
            self._quick += 1
        self._since = None

    def _turn(self, since: float) -> None:
        if self._since != since:
            return
        if self._loop.time() - since < SPIN_S:
            # a loop that has something to do looks for what has arrived without waiting for it
            self._loop.call_soon(self._turn, since)
        else:
            self._quick = -PENALTY
