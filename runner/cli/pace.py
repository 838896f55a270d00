"""How fast something goes, and how long the rest of it takes at that pace."""

from __future__ import annotations

from collections import deque
from typing import Final

WINDOW_S: Final = 30.0
ENOUGH: Final = 10
"""Done within the window, for its pace to be that of the whole; groups end in bursts."""

LEAST_S: Final = 1.0
"""Below which a pace says nothing."""


class Pace:
    """The pace of late, or since the beginning where of late there was too little."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque([(0.0, 0)])

    def at(self, now: float, done: int) -> float:
        """Return how many are done per second; 0 where nothing can be said.

        Args:
            now: Seconds since the beginning.
            done: How many are done by then.
        """
        seen = self._seen
        seen.append((now, done))
        # the last one before the window stays, as the window's beginning
        while len(seen) > 2 and seen[1][0] <= now - WINDOW_S:
            seen.popleft()
        since, before = seen[0] if done - seen[0][1] >= ENOUGH else (0.0, 0)
        return (done - before) / (now - since) if now - since >= LEAST_S else 0.0


def rate(per_second: float) -> str:
    """Return a pace in words."""
    if per_second >= 1:
        return f"{per_second:,.1f}/s"
    return f"{per_second * 60:.1f}/min" if per_second * 60 >= 1 else f"{per_second * 3600:.1f}/h"


def duration(seconds: float) -> str:
    """Return a length of time in words, with no more precision than a forecast has."""
    if seconds < 100:
        return f"{max(1, round(seconds))} s"
    if seconds < 100 * 60:
        return f"{round(seconds / 60)} min"
    return f"{seconds / 3600:.1f} h" if seconds < 100 * 3600 else f"{seconds / 86400:.1f} days"
