"""What JSON, msgpack or a frame cannot hold costs the rollout that gave it, or its group, and nothing else."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from runner import RecordEvent, RemoteError, RolloutRecord
from runner.provision import Cache
from tests.hostile.environments import giving
from tests.hostile.environments.giving import LATER, REFUSED
from tests.integration.isolation import bundled, requests_for, run_one, unconfined, until

pytestmark = pytest.mark.integration


async def test_whatever_a_rollout_gives_ten_others_in_flight_are_not_affected_and_closing_does_not_hang(
    shared_cache: Path, tmp_path: Path
) -> None:
    records: dict[str, RolloutRecord] = {}

    def on_event(event: object) -> None:
        if isinstance(event, RecordEvent):
            records[event.record.rollout_id] = event.record

    async with unconfined(bundled(giving, "Giving"), cache=Cache(shared_cache), on_event=on_event) as env:
        dataset = await env.create_dataset("eval", tmp_path)
        waiting = next(example for example in dataset if example.id == "waiting")
        go = tmp_path / "go"
        others = asyncio.ensure_future(
            env.run_group(requests_for(waiting, 10, prefix="other", base_url=f"file://{go}"))
        )

        # not a number that a reward can be: the attempt cannot even be made, which raises in process too
        for name in REFUSED:
            with pytest.raises(RemoteError, match=r"raised (ValueError|OverflowError|TypeError)"):
                await run_one(env, dataset, name, count=2)

        # made, and changed or too large afterwards: that rollout alone
        for name in LATER:
            first, last = (await run_one(env, dataset, name, count=2)).values()
            assert (first.termination_reason, first.rewards) == ("finished", {"x": 1.0}), name
            assert (last.termination_reason, last.rewards) == ("sandbox_error", {}), name
            assert str(last.error).startswith("The rollout's outcome cannot cross to the caller: "), name
            assert (records[f"{name}-0"].origin, records[f"{name}-1"].origin) == ("environment", "runner")

        # odd, but it can cross, or need not
        double = (await run_one(env, dataset, "double", count=2))["double-1"]
        assert double.rewards == {"x": 0.25}
        assert type(double.rewards["x"]) is float
        large = (await run_one(env, dataset, "large integer", count=2))["large integer-1"]
        assert large.rewards == {"x": 2**65}
        odd = (await run_one(env, dataset, "odd metadata", count=2))["odd metadata-1"]
        assert (odd.rewards, odd.error) == ({"x": 1.0}, None)
        assert records["odd metadata-1"].transcript == [
            {"role": "user", "content": "hi"},
            {"open": "<TextIOWrapper>", "function": "<function>", "integer": 2**65},
        ]
        huge = (await run_one(env, dataset, "huge transcript", count=2))["huge transcript-1"]
        assert (huge.rewards, huge.error) == ({"x": 1.0}, None)
        assert records["huge transcript-1"].transcript == [{"role": "user", "content": "hi"}]
        assert records["huge transcript-1"].transcript_omitted_bytes > 300_000_000

        assert not others.done()
        go.touch()
        await until(others.done, what="the ten others")
        assert [outcome.rewards for outcome in others.result().values()] == [{"x": 1.0}] * 10
        assert env.deaths == ()
    assert env.deaths == ()
