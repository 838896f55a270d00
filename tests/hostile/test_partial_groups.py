"""Groups some of whose rollouts failed: the others are scored among themselves, and every place has its own result."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from runner import RemoteError, isolate
from runner.provision import Cache
from tests.hostile.environments import grading
from tests.integration.isolation import bundled, run_one

pytestmark = pytest.mark.integration


async def test_results_stand_in_the_order_and_number_of_the_requests_and_only_survivors_are_ranked(
    shared_cache: Path, tmp_path: Path
) -> None:
    async with isolate(bundled(grading, "Grading"), cache=Cache(shared_cache)) as env:
        dataset = await env.create_dataset("eval", tmp_path)
        four, three, fine, single, none = await asyncio.gather(
            run_one(env, dataset, "the middle fails", count=4),
            run_one(env, dataset, "every second fails", count=3),
            run_one(env, dataset, "fine", count=4),
            run_one(env, dataset, "fine", count=1),
            run_one(env, dataset, "all fail", count=4),
        )
        assert [*four] == [f"the middle fails-{k}" for k in range(4)]
        assert [outcome.termination_reason for outcome in four.values()] == [
            "finished", "tool_error", "tool_error", "finished",
        ]  # fmt: skip
        # first and second of the two that are left, not first and fourth
        assert [outcome.rewards for outcome in four.values()] == [{"rank": 0.0}, {}, {}, {"rank": 1.0}]
        assert [outcome.rewards for outcome in three.values()] == [{"rank": 0.0}, {}, {"rank": 1.0}]
        assert [outcome.rewards["rank"] for outcome in fine.values()] == [0.0, 1.0, 2.0, 3.0]
        assert [outcome.rewards for outcome in single.values()] == [{"rank": 0.0}]
        assert [(outcome.termination_reason, outcome.rewards) for outcome in none.values()] == [("tool_error", {})] * 4


async def test_a_rollout_that_raises_raises_out_of_its_group_and_out_of_no_other(
    shared_cache: Path, tmp_path: Path
) -> None:
    async with isolate(bundled(grading, "Grading"), cache=Cache(shared_cache)) as env:
        dataset = await env.create_dataset("eval", tmp_path)
        raised, fine = await asyncio.gather(
            run_one(env, dataset, "the middle raises", count=3),
            run_one(env, dataset, "fine", count=3),
            return_exceptions=True,
        )
        assert isinstance(raised, RemoteError)
        assert "KeyError: 'no such row'" in str(raised)
        assert "run_rollout" in raised.remote_traceback
        assert isinstance(fine, dict)
        assert [outcome.rewards["rank"] for outcome in fine.values()] == [0.0, 1.0, 2.0]
