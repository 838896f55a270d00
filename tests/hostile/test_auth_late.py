"""A rollout that stays beyond its time, and a caller that goes while a credential source is being asked."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from benchmax.auth import ModelRequestContext
from runner import Binding, Limits, isolate
from runner.provision import Cache
from tests.hostile.environments import borrowing
from tests.integration.isolation import bundled, requests_for, run_one, unconfined, until
from tests.unit.broker_lab import Held, Source

pytestmark = pytest.mark.integration

JUDGE = "https://judge.example/v1"


async def test_a_rollout_out_of_time_gets_no_more_headers_while_its_siblings_are_still_judged(
    shared_cache: Path, tmp_path: Path
) -> None:
    own, judge = Source(), Source()
    bundle = bundled(borrowing, "Borrowing", judge_url=JUDGE)
    auth: dict[str, Any] = {"judge": Binding(judge, urls=[JUDGE])}
    async with unconfined(bundle, auth=auth, cache=Cache(shared_cache), limits=Limits(rollout_s=1.0)) as env:
        dataset = await env.create_dataset("eval", tmp_path)
        outcomes = await run_one(env, dataset, "outstay", count=2, auth=own)
        audit = env.audit
    assert [outcome.termination_reason for outcome in outcomes.values()] == ["rollout_timeout", "finished"]
    assert own.asked == []
    assert len(judge.asked) == 1
    assert [(entry.verdict, entry.reason) for entry in audit] == [
        ("refused", "rollout 'outstay-0' is over."),
        ("refused", "rollout 'outstay-0' is over."),
        ("answered", ""),
    ]


class Blocking:
    """Blocks its thread until it is released."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.started = threading.Event()

    def headers_for_request(self, context: ModelRequestContext) -> dict[str, str]:
        self.started.set()
        self.release.wait(30)
        return {}


async def test_a_caller_that_closes_leaves_neither_task_nor_thread_of_its_credential_sources(
    shared_cache: Path, tmp_path: Path
) -> None:
    blocking: Any = Blocking()
    waiting = Held()
    before = asyncio.all_tasks()
    bundle = bundled(borrowing, "Borrowing", judge_url=JUDGE)
    async with isolate(bundle, cache=Cache(shared_cache)) as env:
        dataset = await env.create_dataset("eval", tmp_path)
        example = next(example for example in dataset if example.id == "hold")
        groups = [
            asyncio.ensure_future(env.run_group(requests_for(example, 4, auth=auth, prefix=prefix)))
            for prefix, auth in (("a", blocking), ("b", waiting))
        ]
        await waiting.started.wait()
        await until(blocking.started.is_set, what="the blocking source to be asked")
    outcomes = [outcome for group in groups for outcome in (await group).values()]
    assert {outcome.termination_reason for outcome in outcomes} == {"cancelled"}
    assert waiting.ended.is_set()
    assert asyncio.all_tasks() == before
    # a thread cannot be stopped, but it keeps nothing alive and ends with its source
    (thread,) = [thread for thread in threading.enumerate() if thread.name == "benchmax-credentials"]
    assert thread.daemon
    blocking.release.set()
    await asyncio.to_thread(thread.join, 10)
    assert not thread.is_alive()
