"""How two validations compare: findings that came and went, checks, rewards side by side, and how their runs differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmax.bundle.findings.finding import Finding
from runner.recording.difference import RunDifference, Side, compare
from runner.report.page.figures import finite, mean
from runner.report.value import Report
from runner.validation import CheckFacts, Verdict

MAX_ROWS: Final = 200
"""Of each table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckPair:
    """What came of one check in both; `None` where one did not have it."""

    name: str
    first: CheckFacts | None
    second: CheckFacts | None

    @property
    def differs(self) -> bool:
        """Whether it came to something else."""
        return (self.first and self.first.state) != (self.second and self.second.state)


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardPair:
    """The mean of one component over one example's rollouts in both; `None` where there is none."""

    example: str
    component: str
    first: float | None
    second: float | None

    @property
    def change(self) -> float | None:
        """By how much the second is greater."""
        return None if self.first is None or self.second is None else self.second - self.first


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Two validations side by side.

    Args:
        appeared, gone, stayed: Findings of the second alone, of the first alone, and of both.
        checks: Every check of either.
        rewards: The first rows: those that changed most first.
        more_rewards: Rows left out.
        differences: Of the runs, bounded; empty where one of them has no run.
        counts: How many there are of each kind.
    """

    appeared: list[Finding]
    gone: list[Finding]
    stayed: list[Finding]
    checks: list[CheckPair]
    rewards: list[RewardPair]
    more_rewards: int
    differences: list[RunDifference]
    counts: Mapping[str, int]


def compared(first: Verdict, second: Verdict) -> Compared:
    """Compare two verdicts."""
    one, other = _by_identity(first), _by_identity(second)
    rewards = sorted(_rewards(first.first_pass, second.first_pass), key=_changed_most)
    differences: list[RunDifference] = []
    counts: Mapping[str, int] = {}
    if first.first_pass is not None and second.first_pass is not None:
        # where they lie is of no interest here
        sides = [Side(Path(), found) for found in (first.first_pass, second.first_pass)]
        found = compare(*sides)
        # rewards have a table of their own
        differences = [one for one in found.differences if one.kind != "rewards"]
        counts = {kind: count for kind, count in found.counts.items() if count and kind != "rewards"}
    return Compared(
        appeared=[found for key, found in other.items() if key not in one],
        gone=[found for key, found in one.items() if key not in other],
        stayed=[found for key, found in other.items() if key in one],
        checks=[*_checks(first, second)],
        rewards=rewards[:MAX_ROWS],
        more_rewards=max(0, len(rewards) - MAX_ROWS),
        differences=differences,
        counts=counts,
    )


def _by_identity(verdict: Verdict) -> dict[tuple[str, str], Finding]:
    # lines move, and texts have numbers in them
    return {(found.code, found.what): found for found in verdict.findings}


def _checks(first: Verdict, second: Verdict) -> Iterator[CheckPair]:
    one, other = ({check.name: check for check in verdict.checks} for verdict in (first, second))
    for name in dict.fromkeys([*one, *other]):
        yield CheckPair(name=name, first=one.get(name), second=other.get(name))


def _rewards(first: Report | None, second: Report | None) -> Iterator[RewardPair]:
    one, other = _means(first), _means(second)
    for key in dict.fromkeys([*one, *other]):
        yield RewardPair(example=key[0], component=key[1], first=one.get(key), second=other.get(key))


def _means(report: Report | None) -> dict[tuple[str, str], float]:
    values: dict[tuple[str, str], list[float]] = {}
    for group in report.groups if report is not None else ():
        for outcome in group.outcomes:
            for component, value in outcome.rewards.items():
                values.setdefault((group.example_id, component), []).append(value)
    return {key: mean(kept) for key, found in values.items() if (kept := finite(found))}


def _changed_most(pair: RewardPair) -> tuple[bool, float]:
    change = pair.change
    return (change is not None, -abs(change or 0.0))
