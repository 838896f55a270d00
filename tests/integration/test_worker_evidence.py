"""Whatever is ended on time leaves evidence: what it printed last, its messages so far, and where it was."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from runner import Limits, RecordEvent, RolloutRecord, StallEvent
from runner.provision import Cache
from tests.contract import loopback
from tests.integration.environments import stalling
from tests.integration.isolation import bundled, run_one, unconfined, until

pytestmark = pytest.mark.integration

SHORT = Limits(rollout_s=1.0, scoring_s=1.0, cancel_grace_s=0.2)


class Stalled:
    """A stalling environment with what it told while it ran."""

    def __init__(self, env: Any, dataset: Any, events: list[Any]) -> None:
        self.env = env
        self.dataset = dataset
        self.events = events

    async def record(self, act: str, **options: Any) -> RolloutRecord:
        """Run one rollout; return what is known of it."""
        await run_one(self.env, self.dataset, act, **options)
        return self.records[f"{options.get('prefix', act)}-0"]

    @property
    def records(self) -> dict[str, RolloutRecord]:
        return {event.record.rollout_id: event.record for event in self.events if isinstance(event, RecordEvent)}

    @property
    def stalls(self) -> list[StallEvent]:
        return [event for event in self.events if isinstance(event, StallEvent)]


Open = Callable[..., Any]


@pytest.fixture
def opened(shared_cache: Path, tmp_path: Path) -> Open:
    @asynccontextmanager
    async def opened(limits: Limits = SHORT, **options: Any) -> AsyncIterator[Stalled]:
        events: list[Any] = []
        bundle = bundled(stalling, "Stalling")
        async with unconfined(
            bundle, cache=Cache(shared_cache), limits=limits, on_event=events.append, **options
        ) as env:
            yield Stalled(env, await env.create_dataset("eval", tmp_path), events)

    return opened


def printed(record: RolloutRecord) -> list[tuple[str, str]]:
    return [(line.stream, line.text) for line in record.logs if not line.logger.startswith("benchmax.")]


BEFORE = [("stdout", "one whole line"), ("log", "logged")]
UNFINISHED = ("stdout", "and one without an end")


# -- ended on time, with evidence -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("act", "function", "how"),
    [
        ("sleeps", "Stalling.deeper", "did not end within 1 s."),
        ("swallows", "Stalling.swallows", "was killed 0.2 s after it was asked to stop."),
        ("blocks", "Stalling.blocks", "was killed 0.2 s after it was asked to stop. It was at "),
        ("c-call", "Stalling.c_call", "was killed 0.2 s after it was asked to stop. It was at "),
        ("thread", "Stalling.thread", "was killed 0.2 s after it was asked to stop. It was at "),
    ],
)
async def test_a_rollout_out_of_time_leaves_its_last_lines_and_its_stack(
    opened: Open, act: str, function: str, how: str
) -> None:
    async with opened() as it:
        record = await it.record(act)
        assert (await it.record("fine")).outcome.termination_reason == "finished"
    assert (record.outcome.termination_reason, record.origin) == ("rollout_timeout", "runner")
    assert how in str(record.outcome.error)
    assert f"in {function}" in record.stack
    lines = printed(record)
    assert lines[:2] == BEFORE
    assert UNFINISHED in lines
    assert (("stderr", "from a thread") in lines) == (act == "thread")


@pytest.mark.parametrize(("act", "function"), [("regex", "in regex"), ("total", "in total")])
async def test_code_that_keeps_the_interpreters_lock_is_located_by_the_interpreter_itself(
    opened: Open, act: str, function: str
) -> None:
    async with opened() as it:
        record = await it.record(act)
    assert record.outcome.termination_reason == "rollout_timeout"
    assert function in str(record.outcome.error)
    assert function in record.stack
    assert "most recent call first" in record.stack
    assert "watchdog" not in record.stack
    # an unfinished line is with the worker's own threads, none of which ran any more
    assert printed(record) == BEFORE


async def test_what_was_printed_right_before_a_crash_is_there(opened: Open) -> None:
    async with opened() as it:
        record = await it.record("crashes")
    assert record.outcome.termination_reason == "sandbox_error"
    assert printed(record) == BEFORE


async def test_scoring_out_of_time_says_where_it_was(opened: Open) -> None:
    async with opened() as it:
        record = await it.record("scores", count=2)
        other = it.records["scores-1"]
    assert record.outcome.termination_reason == other.outcome.termination_reason == "group_timeout"
    assert "in Stalling.compute_group_rewards" in record.stack
    assert record.stack == other.stack


async def test_whoever_is_killed_with_another_leaves_evidence_too(opened: Open) -> None:
    async with opened(Limits(rollout_s=1.0, cancel_grace_s=0.2)) as it:
        # its rollout has ended, and it is being scored
        collateral = asyncio.ensure_future(it.record("scores"))
        record, other = await it.record("swallows"), await collateral
    assert record.outcome.termination_reason == "rollout_timeout"
    assert other.outcome.termination_reason == "worker_lost"
    assert "in Stalling.swallows" in record.stack
    assert "in Stalling.compute_group_rewards" in other.stack
    assert printed(other)[:2] == BEFORE


async def test_a_worker_that_may_be_killed_in_a_moment_is_given_nothing_new_to_take_along(opened: Open) -> None:
    async with opened(Limits(rollout_s=0.3, cancel_grace_s=0.7)) as it:
        late = asyncio.ensure_future(it.record("swallows"))
        await until(lambda: it.env._pool.children[0].conversation.doubtful, what="the deadline")
        fine = await it.record("fine")
        assert (await late).outcome.termination_reason == "rollout_timeout"
    assert fine.outcome.termination_reason == "finished"


async def test_a_rollout_that_ended_by_itself_has_no_stack(opened: Open) -> None:
    async with opened() as it:
        record = await it.record("fine")
    assert (record.outcome.termination_reason, record.stack) == ("finished", "")
    assert printed(record) == [*BEFORE, UNFINISHED]


# -- messages so far ------------------------------------------------------------------------------------------


def calling(arguments: list[dict[str, bool]]) -> Callable[[loopback.Received], loopback.Reply]:
    """A model that calls the tool once with each of the arguments, and then ends."""

    def answer(received: loopback.Received) -> loopback.Reply:
        turn = sum(message["role"] == "assistant" for message in received.body["messages"])
        if turn == len(arguments):
            return loopback.completion("done")
        call = loopback.call("tool", json.dumps(arguments[turn]), f"c{turn}")
        return loopback.completion(None, finish="tool_calls", calls=[call])

    return answer


async def test_the_messages_so_far_of_a_rollout_out_of_time_are_kept(opened: Open) -> None:
    with loopback.running_server() as server:
        async with opened(Limits(rollout_s=3.0, cancel_grace_s=0.2)) as it:
            # the first one is there to load the model's client
            server.answer = calling([])
            ended = await it.record("tool", base_url=server.url, prefix="ended")
            server.answer = calling([{}, {"wait": True}])
            cancelled = await it.record("tool", base_url=server.url, prefix="cancelled")
            server.answer = calling([{}, {"block": True}])
            killed = await it.record("tool", base_url=server.url, prefix="killed")
    assert [message["role"] for message in ended.transcript or []] == ["user", "assistant"]
    for record in (cancelled, killed):
        assert record.outcome.termination_reason == "rollout_timeout"
        assert ("was killed" in str(record.outcome.error)) == (record is killed)
        assert [message["role"] for message in record.transcript or []] == ["user", "assistant", "tool", "assistant"]
        assert "in Stalling.run_tool" in record.stack


# -- stalls ---------------------------------------------------------------------------------------------------


async def test_a_stalled_loop_is_reported_while_it_stalls_and_when_it_is_over(opened: Open, tmp_path: Path) -> None:
    async with opened(Limits(stall_s=0.2)) as it:
        group = asyncio.ensure_future(it.record("pauses"))
        await until(lambda: len(it.stalls) >= 2, what="two reports of the stall")
        assert not any(stall.over for stall in it.stalls)
        (tmp_path / "go").touch()
        record = await group
        await until(lambda: it.stalls[-1].over, what="the end of the stall")
        pids = {event.pid for event in it.stalls}
        last = it.stalls[-1]
    assert record.outcome.termination_reason == "finished"
    assert len(pids) == 1
    assert {stall.rollout_ids for stall in it.stalls} == {("pauses-0",)}
    assert all("in Stalling.pauses" in stall.where and "in Stalling.pauses" in stall.stack for stall in it.stalls)
    assert 0.2 <= it.stalls[0].seconds < it.stalls[1].seconds < last.seconds


async def test_a_loop_that_waits_does_not_stall(opened: Open, tmp_path: Path) -> None:
    async with opened(Limits(stall_s=0.05)) as it:
        group = asyncio.ensure_future(it.record("waits"))
        await until((tmp_path / "waiting-waits-0").exists, what="the rollout")
        stalls = len(it.stalls)
        await asyncio.sleep(0.5)
        (tmp_path / "go").touch()
        await group
        assert not [stall for stall in it.stalls[stalls:] if "Stalling.waits" in stall.where]
