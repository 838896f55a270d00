"""One bad row among a thousand costs itself; whatever happens to it, what was meant to run is what is accounted for."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner import Artifact, Limits
from runner.models import parse_model
from runner.provision import Cache
from runner.report import Report
from runner.run import Run, RunPlan
from tests.hostile.environments import grading
from tests.integration.isolation import bundled

pytestmark = pytest.mark.integration


async def run(
    cache: Path,
    folder: Path,
    rows: int,
    odd: dict[int, str],
    *,
    group_size: int,
    max_in_flight: int = 64,
    limits: Limits | None = None,
) -> Report:
    artifact = Artifact.of(bundled(grading, "Grading", rows=rows, odd=odd))
    model = parse_model("mock", base_url=None)
    plan = RunPlan(
        model=model, data=folder, group_size=group_size, max_in_flight=max_in_flight, limits=limits or Limits()
    )
    report = await Run(artifact, plan, cache=Cache(cache)).run()
    # whatever happened: nothing is lost, nothing is counted twice
    assert report.expected == rows * group_size == report.ok + report.failed + report.missing
    assert len(report.groups) == rows
    return report


async def test_a_scorer_that_fails_for_one_row_of_a_thousand_fails_that_row(shared_cache: Path, tmp_path: Path) -> None:
    report = await run(shared_cache, tmp_path, 1000, {617: "scorer raises"}, group_size=1, max_in_flight=200)
    assert (report.ok, report.failed, report.missing) == (999, 1, 0)
    (bad,) = (outcome for outcome in report.outcomes if not outcome.ok)
    assert bad.rollout_id == "617-0617-0"
    assert (bad.termination_reason, bad.error, bad.rewards) == ("group_reward_error", "KeyError: 'no such row'", {})
    assert any("Traceback" in line.text for line in bad.logs)
    assert report.components() == {"rank": (0.0, 999)}


async def test_a_row_that_raises_and_one_that_ends_the_worker_do_not_end_the_run(
    shared_cache: Path, tmp_path: Path
) -> None:
    odd = {50: "the middle raises", 120: "out of memory", 200: "every second fails"}
    report = await run(shared_cache, tmp_path, 250, odd, group_size=2, max_in_flight=20)
    by_example = {group.example_id: group for group in report.groups}
    assert "KeyError" in str(by_example["0050"].error)
    assert by_example["0050"].error_code == "remote"
    assert by_example["0050"].outcomes == []
    assert [outcome.ok for outcome in by_example["0200"].outcomes] == [True, False]
    # those in flight beside the one that ended the worker are lost with it, and no others
    lost = [outcome for outcome in report.outcomes if outcome.origin == "runner"]
    assert {outcome.termination_reason for outcome in lost} == {"sandbox_error"}
    assert 2 <= len(lost) <= 20
    assert report.missing == 2
    assert report.ok == 500 - 2 - 1 - len(lost)
    assert len(report.worker_deaths) == 1
    assert by_example["0249"].outcomes[1].ok


async def test_when_half_of_the_rollouts_fail_before_their_first_turn_they_count_all_the_same(
    shared_cache: Path, tmp_path: Path
) -> None:
    odd = dict.fromkeys(range(0, 40, 2), "model does not answer")
    report = await run(shared_cache, tmp_path, 40, odd, group_size=2)
    assert (report.expected, report.ok, report.failed, report.missing) == (80, 40, 40, 0)
    assert report.reasons() == {"finished": 40, "model_error": 40}
    assert report.components()["rank"][1] == 40


async def test_a_report_keeps_what_rollouts_said_up_to_its_limit_and_counts_the_rest(
    shared_cache: Path, tmp_path: Path
) -> None:
    odd = dict.fromkeys(range(30), "scorer raises")
    whole = await run(shared_cache, tmp_path, 30, odd, group_size=1)
    limits = Limits(report_bytes=20_000)
    part = await run(shared_cache, tmp_path, 30, odd, group_size=1, limits=limits)
    assert all(outcome.logs and not outcome.dropped_logs for outcome in whole.outcomes)
    bare = [outcome for outcome in part.outcomes if not outcome.logs]
    assert 0 < len(bare) < 30
    assert sum(len(line.text) for outcome in part.outcomes for line in outcome.logs) < 20_000
    assert [outcome.dropped_logs for outcome in bare] == [len(whole.outcomes[0].logs)] * len(bare)
    # how each ended is known all the same
    assert part.reasons() == {"group_reward_error": 30}
    assert all("KeyError" in outcome.cause for outcome in part.outcomes)
