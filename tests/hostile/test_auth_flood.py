"""A bundle that asks a hundred thousand times costs its caller neither memory nor its other rollouts."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from runner import Limits, isolate
from runner.provision import Cache
from tests.hostile.environments import borrowing
from tests.integration.isolation import bundled, run_one, texts

pytestmark = [pytest.mark.integration, pytest.mark.slow]

FLOOD = 100_000


async def test_a_hundred_thousand_requests_are_refused_by_name_and_leave_nothing(
    shared_cache: Path, tmp_path: Path
) -> None:
    bundle = bundled(borrowing, "Borrowing", judge_url="https://judge.example", flood=FLOOD)
    limits = Limits(headers_per_rollout=1000)
    async with isolate(bundle, cache=Cache(shared_cache), limits=limits) as env:
        dataset = await env.create_dataset("eval", tmp_path)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        assert texts(await run_one(env, dataset, "flood")) == [None]
        # on the channel they come before the next one, which is answered as if nothing had been
        assert texts(await run_one(env, dataset, "hold", prefix="next")) == ["answered"]
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        counts = {found.verdict: found.count for found in env.audit_counts}
        limited = [entry for entry in env.audit if entry.verdict == "limited"]
        assert env.deaths == ()
    # some may have been read after the end of their call
    assert sum(counts.values()) == FLOOD + 1
    assert counts["answered"] == 1000 + 1
    assert "Raise limits.headers_per_rollout" in limited[-1].reason
    assert after - before < 64 * 1024
