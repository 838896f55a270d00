"""How often somebody may ask: a bucket of tokens for each, filled at a steady rate."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from runner.service.http.bounds import BUCKETS

BURST_S: Final = 10.0
"""Seconds' worth of requests that may come at once: a page that asks for several things is no flood."""

LEAST_BURST: Final = 10.0
"""The same in requests, for rates so low that less would be of no use."""


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at: float


class Rates:
    """Buckets by name.

    Args:
        clock: Monotonic seconds.
        most: Buckets that are kept; those unused for longest are forgotten, and so filled.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, most: int = BUCKETS) -> None:
        self._clock = clock
        self._most = most
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def take(self, name: str, per_minute: float) -> float:
        """Take a token; return 0, or for how many seconds there is none, and then none is taken."""
        rate = per_minute / 60
        burst = min(max(rate * BURST_S, LEAST_BURST), max(per_minute, 1.0))
        now = self._clock()
        bucket = self._buckets.get(name)
        if bucket is None:
            bucket = self._buckets[name] = _Bucket(burst, now)
            if len(self._buckets) > self._most:
                self._buckets.popitem(last=False)
        self._buckets.move_to_end(name)
        bucket.tokens = min(burst, bucket.tokens + (now - bucket.at) * rate)
        bucket.at = now
        if bucket.tokens < 1:
            return (1 - bucket.tokens) / rate
        bucket.tokens -= 1
        return 0.0
