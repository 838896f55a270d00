"""A bundle that sends frames of its own making, changed at random, at every moment of its worker's life."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from benchmax.envs import RolloutOutcome
from runner import Limits, RunnerError
from runner.protocol import AUTH_FD, HEADER, WORK_FD, encode
from runner.provision import Cache
from tests.hostile.environments import mutating
from tests.integration.isolation import bundled, requests_for, unconfined
from tests.unit.message_samples import AUTH_FROM_WORKER, AUTH_TO_WORKER, FROM_WORKER, TO_WORKER

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(180)]

FRAMES = 300
SEED = 1
LIMITS = Limits(
    startup_s=10, dataset_s=2, rollout_s=2, scoring_s=2, cancel_grace_s=0.3, shutdown_s=0.3, restarts=1_000_000
)


def bodies(messages: list[Any]) -> list[str]:
    return [encode(message)[HEADER.size :].hex() for message in messages]


def sent(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("worker-*"))


def memory_kib() -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1])


async def live(folder: Path, cache: Path, ends: Counter[str]) -> None:
    """One environment's whole life; whatever the worker says, each call has one result of a known kind."""
    env = unconfined(bundled(mutating, "Mutating", folder=str(folder), seed=SEED), cache=Cache(cache), limits=LIMITS)
    try:
        await env.start()
        dataset = await env.create_dataset("eval", folder)
        for _ in range(6):
            requests = requests_for(dataset[0], 2)
            groups = await asyncio.gather(env.run_group(requests), env.run_group(requests), return_exceptions=True)
            for outcomes in groups:
                if isinstance(outcomes, BaseException):
                    raise outcomes
                assert list(outcomes) == ["r-0", "r-1"]
                for outcome in outcomes.values():
                    assert isinstance(outcome, RolloutOutcome)
                    ends[outcome.termination_reason] += 1
    except RunnerError as error:
        ends[type(error).__name__] += 1
    finally:
        try:
            await env.aclose()
        except RunnerError as error:
            ends[f"close: {type(error).__name__}"] += 1


async def test_every_call_ends_in_one_known_way_whatever_a_worker_sends(shared_cache: Path, tmp_path: Path) -> None:
    corpora = {
        WORK_FD: bodies([*FROM_WORKER, *FROM_WORKER, *TO_WORKER, *AUTH_TO_WORKER]),
        AUTH_FD: bodies([*AUTH_FROM_WORKER * 3, *AUTH_TO_WORKER, *FROM_WORKER]),
    }
    (tmp_path / "corpus.json").write_text(json.dumps(corpora))
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    ends: Counter[str] = Counter()
    before = memory_kib()

    async def lives() -> None:
        while sent(tmp_path) < FRAMES:
            await live(tmp_path, shared_cache, ends)

    await asyncio.gather(lives(), lives())
    print(ends, sent(tmp_path), len(list(tmp_path.glob("worker-*"))), memory_kib() - before)
    assert not complaints
    assert memory_kib() - before < 100_000
