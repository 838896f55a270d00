"""How a run stands while it goes on, counted as it goes: what a display shows costs no look at the outcomes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

MAX_REASONS: Final = 100
"""Reasons of failures that are told apart; a bundle can think of a new one for each rollout."""

OTHER_REASONS: Final = "other reasons"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """A run's rollouts at one moment: `expected` = `ok` + `failed` + `missing` + `to_go`, always.

    Args:
        expected: Rollouts that the run is about; 0 while that is not known.
        kept: Those of them that had their outcome from before.
        ok: Rollouts that ended well.
        reasons: How many ended otherwise, by termination reason; beyond 100 reasons under `other reasons`.
        lost: Rollouts that get no outcome, since their group raised.
        under_way: Rollouts that have begun, or are about to, and have no outcome yet.
        unscored: Those of them that have run: their group has still to end or to be scored.
        calls: Requests to models that the gateway is working on; `None` where nothing is seen of them.
        over: Whether no more outcomes come.
        seconds: Since the first that is not kept began; 0 before.
    """

    expected: int = 0
    kept: int = 0
    ok: int = 0
    reasons: Mapping[str, int]
    lost: int = 0
    under_way: int = 0
    unscored: int = 0
    calls: int | None = None
    over: bool = False
    seconds: float = 0.0

    @property
    def failed(self) -> int:
        """Rollouts that ended, but not well."""
        return sum(self.reasons.values())

    @property
    def missing(self) -> int:
        """Rollouts that get no outcome."""
        return self.expected - self.ok - self.failed if self.over else self.lost

    @property
    def done(self) -> int:
        """Rollouts of which nothing more is to come."""
        return self.ok + self.failed + self.missing

    @property
    def to_go(self) -> int:
        """Rollouts of which something is to come."""
        return self.expected - self.done


class Count:
    """Counts for a tally. One thread counts; any may ask for the tally."""

    def __init__(self) -> None:
        self.expected = 0
        self.over = False
        self._kept = self._ok = self._lost = self._under_way = 0
        self._reasons: dict[str, int] = {}
        self._began: float | None = None

    def keep(self, *, ok: bool, reason: str) -> None:
        """A rollout has its outcome from before."""
        self._kept += 1
        self._add(ok, reason)

    def begin(self, count: int) -> None:
        """So many rollouts are under way."""
        if self._began is None:
            self._began = time.monotonic()
        self._under_way += count

    def end(self, *, ok: bool, reason: str) -> None:
        """One of those has its outcome."""
        self._under_way -= 1
        self._add(ok, reason)

    def lose(self, count: int) -> None:
        """So many of those will have none."""
        self._under_way -= count
        self._lost += count

    def tally(self, *, unscored: int = 0, calls: int | None = None) -> Tally:
        """Return how it stands; arguments as `Tally` has them."""
        return Tally(
            expected=self.expected,
            kept=self._kept,
            ok=self._ok,
            # in one step, while another thread counts
            reasons=self._reasons.copy(),
            lost=self._lost,
            under_way=self._under_way,
            unscored=min(unscored, self._under_way),
            calls=calls,
            over=self.over,
            seconds=0.0 if self._began is None else time.monotonic() - self._began,
        )

    def _add(self, ok: bool, reason: str) -> None:
        if ok:
            self._ok += 1
            return
        if reason not in self._reasons and len(self._reasons) >= MAX_REASONS:
            reason = OTHER_REASONS
        self._reasons[reason] = self._reasons.get(reason, 0) + 1
