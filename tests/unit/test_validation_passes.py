"""Which rollouts a validation runs, and how many of them again."""

from __future__ import annotations

import pytest

from benchmax.envs import RolloutOutcome
from runner.record import RolloutRecord
from runner.validation.passes import GROUPS, SIBLINGS, Ended, Group, compared, few_enough, groups_of


@pytest.mark.parametrize("examples", [1, 2, 3, 4, 40])
def test_there_are_always_as_many_groups_of_siblings_of_their_own(examples: int) -> None:
    groups = groups_of([f"example-{i}" for i in range(examples)])
    ids = [name for group in groups for name in group.rollout_ids]
    assert len(groups) == GROUPS
    assert len({*ids}) == GROUPS * SIBLINGS
    assert {group.position for group in groups} == {*range(min(examples, GROUPS))}
    # the sample that a model without randomness gives
    assert all(name.rpartition("-")[2].isdigit() for name in ids)


def record(name: str, *, seconds: float = 0.0, error: str | None = None) -> RolloutRecord:
    outcome = RolloutOutcome({"correct": 1.0}, "finished", error)
    return RolloutRecord(rollout_id=name, example_id="e", outcome=outcome, origin="environment", seconds=seconds)


def ended(seconds: float) -> list[Ended]:
    groups = [Group(i, (f"{i}-0", f"{i}-1")) for i in range(GROUPS)]
    return [Ended(group, {name: record(name, seconds=seconds) for name in group.rollout_ids}) for group in groups]


@pytest.mark.parametrize(("seconds", "count"), [(0.1, 4), (10.0, 3), (20.0, 1), (1000.0, 1)])
def test_slow_rollouts_are_fewer_when_they_run_one_after_the_other(seconds: float, count: int) -> None:
    results = ended(seconds)
    assert few_enough(results, seconds=60.0) == [result.group for result in results[:count]]


def test_the_text_of_an_error_is_not_compared() -> None:
    assert compared(record("a", error="this first")) == compared(record("a", error="that first"))
    assert compared(record("a", error="this")) != compared(record("a"))
