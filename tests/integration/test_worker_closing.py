"""Closing always ends, from whatever state, and leaves no worker behind."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runner import (
    Limits,
    RemoteError,
    RestartsUsedUpError,
    RunnerError,
    WorkerEvent,
    WorkerLostError,
    write_artifact,
)
from runner.provision import Cache
from tests.integration.environments import asking, failing, probing, scripted
from tests.integration.isolation import alive, bundled, requests_for, run_one, unconfined, until

pytestmark = pytest.mark.integration


class Pids:
    """The workers that became ready."""

    def __init__(self) -> None:
        self.ready: list[int] = []

    def __call__(self, event: object) -> None:
        if isinstance(event, WorkerEvent) and event.state == "ready":
            self.ready.append(event.pid)

    @property
    def left(self) -> list[int]:
        return [pid for pid in self.ready if alive(pid)]


@pytest.fixture
def pids() -> Iterator[Pids]:
    pids = Pids()
    yield pids
    assert pids.left == []


Make = Callable[..., Any]


@pytest.fixture
def make(shared_cache: Path, pids: Pids) -> Make:
    def make(module: Any = scripted, name: str = "Scripted", *, limits: Limits | None = None, **arguments: Any) -> Any:
        bundle = bundled(module, name, **arguments)
        return unconfined(bundle, cache=Cache(shared_cache), on_event=pids, limits=limits or Limits(shutdown_s=1.0))

    return make


async def test_one_that_was_never_started(make: Make) -> None:
    env = make()
    await env.aclose()
    with pytest.raises(RunnerError, match="is closed"):
        await env.start()


async def test_one_that_is_being_started_and_whoever_waits_for_it_is_told(make: Make) -> None:
    env = make(failing, "HangsInConstructor")
    starting = [asyncio.ensure_future(env.start()) for _ in range(2)]
    await until(lambda: env._pool is not None and env._pool._starting, what="the start of the worker")
    await env.aclose()
    for task in starting:
        with pytest.raises(WorkerLostError, match="was closed while it started"):
            await task


async def test_one_whose_start_is_cancelled_at_any_moment(make: Make) -> None:
    for turns in (0, 1, 5, 20, 100):
        env = make()
        starting = asyncio.ensure_future(env.start())
        for _ in range(turns):
            await asyncio.sleep(0)
        starting.cancel()
        await env.aclose()
        with pytest.raises((asyncio.CancelledError, WorkerLostError)):
            await starting


async def test_from_many_tasks_at_once_and_again(make: Make, pids: Pids) -> None:
    env = make()
    await env.start()
    assert len(pids.left) == 1
    await asyncio.gather(*(env.aclose() for _ in range(10)))
    await env.aclose()
    assert pids.left == []


async def test_with_a_worker_that_is_already_dead(make: Make, tmp_path: Path) -> None:
    async with make(probing, "Probing") as env:
        dataset = await env.create_dataset("eval", tmp_path)
        await run_one(env, dataset, "exit")


async def test_at_any_moment_of_the_replacement_of_a_dead_worker(make: Make, tmp_path: Path) -> None:
    for turns in (1, 2, 3, 5, 8, 20):
        env = make(probing, "Probing")
        dataset = await env.create_dataset("eval", tmp_path)
        await run_one(env, dataset, "exit")
        replacing = asyncio.ensure_future(run_one(env, dataset, "ok"))
        for _ in range(turns):
            await asyncio.sleep(0)
        await env.aclose()
        with contextlib.suppress(WorkerLostError):
            (outcome,) = (await replacing).values()
            assert outcome.termination_reason == "cancelled"


async def test_with_a_worker_that_dies_at_the_same_time(make: Make, tmp_path: Path) -> None:
    env = make(probing, "Probing")
    dataset = await env.create_dataset("eval", tmp_path)
    dying = asyncio.ensure_future(run_one(env, dataset, "exit"))
    async with asyncio.timeout(20):
        while not env._pool.children[0].load:  # in the very turn: it may be dead a few milliseconds later
            await asyncio.sleep(0)
    with contextlib.suppress(WorkerLostError):
        await env.aclose()
    (outcome,) = (await dying).values()
    assert outcome.termination_reason in ("sandbox_error", "cancelled")


async def test_with_a_rollout_that_blocks_the_worker(make: Make, tmp_path: Path) -> None:
    env = make(probing, "Probing", limits=Limits(shutdown_s=0.2))
    dataset = await env.create_dataset("eval", tmp_path)
    blocked = asyncio.ensure_future(run_one(env, dataset, "block"))
    await until((tmp_path / "blocking-block-0").exists, what="the blocking rollout")
    with pytest.raises(WorkerLostError, match=r"did not end within 0\.2 s; .* It was at .* in Probing\.block\."):
        await env.aclose()
    (outcome,) = (await blocked).values()
    assert outcome.termination_reason == "cancelled"


async def test_with_a_credential_source_that_never_answers(make: Make, tmp_path: Path) -> None:
    class Never:
        asked = asyncio.Event()

        async def headers_for_request(self, context: Any) -> dict[str, str]:
            self.asked.set()
            await asyncio.Event().wait()
            return {}

    env = make(asking, "Asking")
    dataset = await env.create_dataset("eval", tmp_path)
    never = Never()
    group = asyncio.ensure_future(env.run_group(requests_for(dataset[0], auth=never)))
    await never.asked.wait()
    await env.aclose()
    (outcome,) = (await group).values()
    assert outcome.termination_reason == "cancelled"


async def test_while_a_dataset_is_made_again_for_a_group(make: Make, tmp_path: Path) -> None:
    env = make(failing, "SlowDatasetTheSecondTime", marker=str(tmp_path / "marker"))
    dataset = await env.create_dataset("eval", tmp_path)
    await env.run_group(requests_for(dataset[0]))
    group = asyncio.ensure_future(env.run_group(requests_for(dataset[0])))
    await until((tmp_path / "marker.again").exists, what="the second making of the dataset")
    await env.aclose()
    (outcome,) = (await group).values()
    assert (outcome.termination_reason, outcome.error) == ("cancelled", "The environment was closed.")


async def test_after_the_restarts_are_used_up_with_the_history_of_all_of_them(make: Make, tmp_path: Path) -> None:
    async with make(failing, "OnlyOnceAndExits", marker=str(tmp_path / "marker"), limits=Limits(restarts=1)) as env:
        dataset = await env.create_dataset("eval", tmp_path)
        await env.run_group(requests_for(dataset[0]))
        with pytest.raises(RemoteError):
            await env.run_group(requests_for(dataset[0]))
        with pytest.raises(RestartsUsedUpError, match="2 workers ended one after the other") as caught:
            await env.run_group(requests_for(dataset[0]))
    died, not_started = caught.value.history
    assert (died.ready, died.code, died.exit, died.output) == (True, "worker-lost", "exit code 1", ("going",))
    assert died.text == "The worker ended by exit code 1 with 1 rollout in flight."
    assert (not_started.ready, not_started.code) == (False, "remote")
    assert "FileExistsError" in not_started.text


async def test_the_environments_own_errors_come_out_after_the_worker_has_gone(make: Make, pids: Pids) -> None:
    env = make(failing, "RaisesInClose")
    await env.start()
    with pytest.raises(RemoteError, match="aclose raised RuntimeError"):
        await env.aclose()
    assert pids.left == []
    await env.aclose()


WITHOUT_ITS_LOOP = """
import asyncio, sys
from pathlib import Path
from runner import isolate
from runner.provision import Cache

pids = []

def tell(event):
    if type(event).__name__ == "WorkerEvent":
        pids.append(event.pid)

cache = Cache(Path(sys.argv[2]))
env = isolate(sys.argv[1], cache=cache, sandbox="off", credentials=sys.argv[3], on_event=tell)
loop = asyncio.new_event_loop()
loop.run_until_complete(env.start())
loop.close()
print(Path(f"/proc/{pids[0]}").exists(), flush=True)
asyncio.run(env.aclose())
print(Path(f"/proc/{pids[0]}").exists(), flush=True)
asyncio.run(env.aclose())
"""


@pytest.mark.parametrize("credentials", ["headers", "gateway"])
def test_when_its_event_loop_is_closed_by_now(credentials: str, shared_cache: Path, tmp_path: Path) -> None:
    write_artifact(bundled(scripted, "Scripted"), tmp_path / "artifact")
    command = [sys.executable, "-c", WITHOUT_ITS_LOOP, str(tmp_path / "artifact"), str(shared_cache), credentials]
    # in a process of its own, since nothing can close the transports of a loop that is closed
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]


def test_an_environment_of_another_thread_is_closed_there(make: Make, pids: Pids) -> None:
    env = make()
    refused: list[RunnerError] = []

    async def elsewhere() -> None:
        await env.start()
        await asyncio.to_thread(try_here)
        await env.aclose()

    def try_here() -> None:
        try:
            asyncio.run(env.aclose())
        except RunnerError as error:
            refused.append(error)

    thread = threading.Thread(target=lambda: asyncio.run(elsewhere()))
    thread.start()
    thread.join()
    assert len(refused) == 1
    assert "another event loop" in str(refused[0])
