"""Deadlines of many things that may each take the same span of time, for the price of one timer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Deadlines(Generic[K]):
    """What is to end within a span of time, in the order in which that ends for each.

    Args:
        seconds: The span.
        on_over: Called with each whose time is over; it is counted no longer then.
    """

    def __init__(self, seconds: float, on_over: Callable[[K], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._seconds = seconds
        self._on_over = on_over
        self._ends: dict[K, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def start(self, this: K) -> None:
        """Begin to count for something that is not counted."""
        self._ends[this] = end = self._loop.time() + self._seconds
        if self._timer is None:
            self._timer = self._loop.call_at(end, self._ring)

    def stop(self, this: K) -> None:
        """Count no longer for something, if it is counted."""
        # the timer stays: nearly everything ends in time, and what comes next needs one again
        self._ends.pop(this, None)

    def close(self) -> None:
        """Count for nothing any more."""
        self._ends.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self) -> None:
        self._timer = None
        now = self._loop.time()
        over: list[K] = []
        for this, end in self._ends.items():
            if end > now:
                self._timer = self._loop.call_at(end, self._ring)
                break
            over.append(this)
        for this in over:
            del self._ends[this]
        for this in over:
            self._on_over(this)
