"""How much the caller holds of one worker, and how often that worker went beyond what it may send.

Comes in: sizes. Goes out: whether there is room. Refuses, as `FrameError`, a flood: what an honest worker never sends
is only counted while it is little.
"""

from __future__ import annotations

from runner.errors import FrameError
from runner.limits import MAX_EXCESS_LINES


class Holding:
    """Room for what one worker's rollouts in flight have said.

    Args:
        limit: Bytes in all.
    """

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._excess = 0

    def take(self, size: int) -> bool:
        """Take room for so many bytes, if it is there."""
        if size > self._free:
            return False
        self._free -= size
        return True

    def give(self, size: int) -> None:
        """Give room back."""
        self._free += size

    def count_excess(self) -> None:
        """Note a line that is beyond its limit.

        Raises:
            FrameError: there were so many that it is a flood.
        """
        self._excess += 1
        if self._excess > MAX_EXCESS_LINES:
            raise FrameError(f"more than {MAX_EXCESS_LINES} log lines beyond the limits, expected none")
