"""Workers that take more than they may are ended and replaced, and what they met is named in their rollouts."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest

from runner import WorkerEvent, isolate
from runner.limits import MIB, Limits
from runner.provision import Cache
from runner.sandbox import probe
from runner.sandbox.cgroups import usable_groups
from runner.sandbox.policy import Level
from tests.conftest import require
from tests.integration.environments import greedy
from tests.integration.isolation import bundled, run_one

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("level", get_args(Level))
async def test_a_rollout_that_fills_the_disk_is_told_which_limit_it_met(
    level: Level, shared_cache: Path, tmp_path: Path
) -> None:
    require(probe.availability(level).available, f"sandbox level {level}")
    limits = Limits(disk_bytes=20 * MIB)
    events: list[Any] = []
    async with isolate(
        bundled(greedy, "Greedy"), sandbox=level, cache=Cache(shared_cache), limits=limits, on_event=events.append
    ) as env:
        assert "disk watch" in env.policy.mechanisms()
        dataset = await env.create_dataset("eval", tmp_path)
        (outcome,) = (await run_one(env, dataset, "disk")).values()
        (after,) = (await run_one(env, dataset, "nothing")).values()
    assert outcome.termination_reason == "sandbox_error"
    assert outcome.error is not None
    assert outcome.error.startswith("The worker ended by SIGKILL (-9) with 1 rollout in flight.")
    assert "It reached limits.disk_bytes = 20 MiB." in outcome.error
    assert "may be" not in outcome.error
    assert after.termination_reason == "finished"
    assert any(isinstance(event, WorkerEvent) and "limits.disk_bytes" in event.message for event in events)


async def test_a_worker_that_ran_out_of_processes_is_told_so(shared_cache: Path, tmp_path: Path) -> None:
    require(usable_groups().has("pids"), "control groups of this process's own")
    limits = Limits(processes=50)
    async with isolate(bundled(greedy, "Greedy"), cache=Cache(shared_cache), limits=limits) as env:
        assert "control group pids" in env.policy.mechanisms()
        dataset = await env.create_dataset("eval", tmp_path)
        (outcome,) = (await run_one(env, dataset, "processes")).values()
    assert outcome.error is not None
    assert "exit code 9" in outcome.error
    assert "It reached limits.processes = 50." in outcome.error
