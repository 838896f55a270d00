"""What executors make of jobs: verdicts of bundles, rollouts of batches, and failures of what is nobody's bundle."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from runner.artifact import METADATA_NAME, write_artifact
from runner.service.settings import ModelSettings
from runner.validation import Verdict
from tests.service.executor.house import House, bundle_of

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

NOBODY = "http://127.0.0.1:9/v1"
"""The discard port, where nobody answers."""


async def test_a_validation_is_told_while_it_runs_and_leaves_a_verdict_a_page_and_its_output(house: House) -> None:
    with house.executor():
        job = await house.submit(
            bundle_of("Asks"), data={"eval.jsonl": '{"question": "What is 6 * 7?", "answer": 42}\n'}
        )
        ended = await house.over(job)
    assert (ended.state, ended.judgement, ended.error, ended.attempts) == ("done", "valid", None, 1)

    verdict = Verdict.from_json(await house.content(ended.verdict_blob))
    assert verdict.ok
    assert verdict.sandbox is not None
    assert (verdict.sandbox.level, verdict.sandbox.network) == ("namespaces", "model-only")
    assert verdict.dataset is not None
    assert verdict.dataset.examples == 1
    assert (await house.content(ended.report_blob)).lower().startswith(b"<!doctype html>")
    assert b"phase: " in await house.content(ended.logs_blob)

    events = await house.events(job)
    assert [event.seq for event in events] == list(range(1, ended.last_seq + 1))
    kinds = [event.kind for event in events]
    assert kinds.index("phase") < kinds.index("rollout") < kinds.index("verdict") < kinds.index("end")
    rollouts = await house.told(job, "rollout")
    assert len(rollouts) == verdict.rollouts
    assert {one["pass"] for one in rollouts} == {"rollouts", "checks"}
    assert rollouts[0]["rewards"].keys() == {"correct"}
    assert (await house.told(job, "verdict"))[0]["judgement"] == "valid"
    assert await house.told(job, "end") == [{"state": "done", "judgement": "valid", "error": None}]


async def test_what_is_wrong_with_a_bundle_is_a_verdict_and_no_failure(house: House) -> None:
    broken = house.folder / "broken"
    write_artifact(bundle_of("Asks"), broken)
    (broken / METADATA_NAME).write_text("{")
    with house.executor():
        jobs = [
            await house.submit(broken),
            await house.submit(bundle_of("Unloadable")),
            await house.submit(bundle_of("Samples")),
        ]
        ended = [await house.over(job) for job in jobs]
    assert [(job.state, job.judgement) for job in ended] == [("done", "invalid")] * 3
    found = [{one["code"] for one in await house.told(job, "finding")} for job in jobs]
    assert found[:2] == [{"artifact"}, {"does-not-load"}]
    assert "trainer_owned_model_control" in found[2]


async def test_what_is_wrong_with_this_machine_is_a_failure_and_no_verdict(open_house: Callable[..., House]) -> None:
    house = open_house()
    job = await house.submit(bundle_of("Asks"), "batch")
    house.settings = replace(house.settings, model=ModelSettings(name="m", base_url=NOBODY))
    with house.executor():
        ended = await house.over(job)
    assert (ended.state, ended.judgement, ended.verdict_blob) == ("failed", None, None)
    assert ended.error is not None
    assert NOBODY in ended.error


async def test_a_model_that_there_is_not_fails_a_job_and_the_others_are_named(open_house: Callable[..., House]) -> None:
    house = open_house(model=ModelSettings(name="large", base_url=NOBODY))
    with house.executor():
        ended = await house.over(await house.submit(bundle_of("Asks"), model="small"))
    assert ended.state == "failed"
    assert ended.error is not None
    assert "'small'" in ended.error
    assert "large" in ended.error


async def test_a_batch_tells_each_rollout_with_what_training_could_not_honour(house: House) -> None:
    with house.executor():
        job = await house.submit(bundle_of("Samples"), "batch", group_size=3)
        ended = await house.over(job)
    assert (ended.state, ended.judgement, ended.error) == ("done", None, None)
    told = [
        (event.kind, json.loads(event.body)) for event in await house.events(job) if event.kind not in ("phase", "log")
    ]
    assert [kind for kind, _ in told] == ["batch_started", *["rollout_completed"] * 3, "batch_completed", "end"]
    assert told[0][1] == {"total": 3}
    rollout = told[1][1]
    assert rollout["success"] is True
    assert rollout["error"] is None
    assert rollout["termination_reason"] == "finished"
    assert rollout["rewards"].keys() == {"correct"}
    assert [found["code"] for found in rollout["contract_errors"]] == ["trainer_owned_model_control"]
    assert rollout["contract_errors"][0]["field"] == "temperature"
    assert [found["code"] for found in rollout["contract_warnings"]] == ["harness_output_cap"]
    assert len({body["rollout_id"] for _, body in told[1:4]}) == 3


async def test_a_batch_of_a_bundle_that_does_not_load_says_so_and_is_over(house: House) -> None:
    with house.executor():
        job = await house.submit(bundle_of("Unloadable"), "batch")
        ended = await house.over(job)
    assert ended.state == "done"
    assert ended.error is not None
    assert "KeyError" in ended.error
    assert "KeyError" in (await house.told(job, "worker_error"))[0]["error"]
    assert await house.told(job, "batch_completed") == []
