"""Both ends write at once, one does not read, one dies meanwhile, a caller leaves: nothing is lost or stuck."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmax.auth import StaticBearerAuth
from benchmax.envs import RolloutRequest
from runner import Limits, WorkerEvent
from runner.artifact import write_artifact
from runner.provision import Cache
from tests.conftest import require
from tests.hostile.environments import exchanging
from tests.integration.isolation import BASE_URL, bundled, requests_for, run_one, unconfined, until

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("both_ways.py")


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_hundred_large_requests_and_large_outcomes_pass_while_headers_are_asked_for(
    shared_cache: Path, tmp_path: Path, loop: str
) -> None:
    require(importlib.util.find_spec(loop), loop)
    artifact = tmp_path / "artifact"
    write_artifact(bundled(exchanging, "Exchanging"), artifact)
    done = subprocess.run(
        [sys.executable, "-W", "error", str(PROGRAM), loop, str(shared_cache), str(artifact), str(tmp_path)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert done.stdout.startswith(loop)


async def test_a_worker_that_is_killed_while_five_megabytes_are_written_to_it_is_one_death_like_any_other(
    shared_cache: Path, tmp_path: Path
) -> None:
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    workers: list[int] = []

    def on_event(event: object) -> None:
        if isinstance(event, WorkerEvent) and event.state == "ready":
            workers.append(event.pid)

    async with unconfined(bundled(exchanging, "Exchanging"), cache=Cache(shared_cache), on_event=on_event) as env:
        dataset = await env.create_dataset("eval", tmp_path)
        blocking = asyncio.ensure_future(run_one(env, dataset, "block"))
        await until((tmp_path / "blocking").exists, what="the blocking rollout")
        quick = next(example for example in dataset if example.id == "quick")
        auth = StaticBearerAuth("unused-token")
        large = [
            RolloutRequest(f"{number}-".ljust(4000, "r"), quick, "m", BASE_URL.ljust(8000, "u"), auth, "eval")
            for number in range(420)
        ]
        waiting = asyncio.ensure_future(env.run_group(large))
        # it is written in the next turns of the loop, and stays here for the most part: the worker does not read
        for _ in range(100):
            await asyncio.sleep(0)
        os.kill(workers[0], signal.SIGKILL)
        outcomes = {**await blocking, **await waiting}
        assert len(outcomes) == 421
        assert {outcome.termination_reason for outcome in outcomes.values()} == {"sandbox_error"}
        assert all("SIGKILL (-9)" in str(outcome.error) for outcome in outcomes.values())
        assert [outcome.error for outcome in (await run_one(env, dataset, "quick")).values()] == [None]
        assert len(env.deaths) == 1
    assert complaints == []


async def test_ten_thousand_outcomes_reach_callers_that_look_every_millisecond_and_some_that_give_up(
    shared_cache: Path, tmp_path: Path
) -> None:
    # a busy machine may need more than the usual grace for what was given up
    limits = Limits(cancel_grace_s=120)
    async with unconfined(bundled(exchanging, "Exchanging"), cache=Cache(shared_cache), limits=limits) as env:
        dataset = await env.create_dataset("eval", tmp_path)
        quick = next(example for example in dataset if example.id == "quick")
        given_up = 0

        async def patient(number: int) -> int:
            group = asyncio.ensure_future(env.run_group(requests_for(quick, 8, prefix=f"p{number}")))
            while not group.done():
                await asyncio.wait([group], timeout=0.001)
            return len(group.result())

        async def impatient(number: int) -> int:
            nonlocal given_up
            patience = 0.001
            while True:
                try:
                    async with asyncio.timeout(patience):
                        return len(await env.run_group(requests_for(quick, 8, prefix=f"i{number}")))
                except TimeoutError:
                    given_up += 1
                    patience *= 2

        counts = await asyncio.gather(*(patient(n) for n in range(1000)), *(impatient(n) for n in range(250)))
        assert counts == [8] * 1250
        assert given_up > 0
        assert env.deaths == ()
