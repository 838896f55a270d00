"""When scoring goes wrong, no rollout gets a number for it: not zero, not one, and not that of another one."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner import Limits, RecordEvent, RemoteError, RolloutRecord, isolate
from runner.provision import Cache
from runner.report.value import outcome_facts
from tests.hostile.environments import grading
from tests.integration.isolation import bundled, run_one

pytestmark = pytest.mark.integration

REASONS = {
    "scorer raises": ("group_reward_error", "KeyError: 'no such row'"),
    "scorer fails": ("judge_error", "the judge answers 500"),
    "scorer hangs": ("group_timeout", "Group scoring did not end within 0.5 s."),
    "scorer gives nothing": ("group_reward_error", "no rewards"),
    "scorer gives text": ("group_reward_error", "TypeError"),
    "scorer forgets one": ("group_reward_error", "missing=['scorer forgets one-0']"),
    "scorer invents one": ("group_reward_error", "unknown=['somebody else']"),
    "model does not answer": ("model_error", "the model does not answer"),
    "out of memory": ("sandbox_error", "SIGKILL (-9)"),
}
RAISED = {"scorer gives NaN": "finite", "scorer gives a text as reward": "numeric"}


async def test_no_failure_of_scoring_gives_a_reward_or_counts_as_an_end_that_is_good(
    shared_cache: Path, tmp_path: Path
) -> None:
    records: dict[str, RolloutRecord] = {}

    def on_event(event: object) -> None:
        if isinstance(event, RecordEvent):
            records[event.record.rollout_id] = event.record

    env = isolate(
        bundled(grading, "Grading"), cache=Cache(shared_cache), limits=Limits(scoring_s=0.5), on_event=on_event
    )
    async with env:
        dataset = await env.create_dataset("eval", tmp_path)
        for act, (reason, text) in REASONS.items():
            outcomes = await run_one(env, dataset, act, count=3)
            assert len(outcomes) == 3, act
            for rollout_id, outcome in outcomes.items():
                assert (outcome.termination_reason, outcome.rewards) == (reason, {}), act
                assert text in str(outcome.error), act
                assert not outcome_facts(records[rollout_id], env.scorable_termination_reasons).ok
        for act, text in RAISED.items():
            with pytest.raises(RemoteError, match=text):
                await run_one(env, dataset, act, count=3)
        fine = await run_one(env, dataset, "fine", count=3)
        assert [outcome.rewards for outcome in fine.values()] == [{"rank": 0.0}, {"rank": 1.0}, {"rank": 2.0}]
