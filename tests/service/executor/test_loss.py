"""Executors that are killed, stopped, suspended or told to end in the middle of a job: it has one end all the same."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from runner.service.database import executors, jobs
from runner.service.settings import ExecutorSettings, LimitSettings, ModelSettings
from tests.service.executor.held_model import HeldModel
from tests.service.executor.house import PATIENCE_S, ExecutorProcess, House, bundle_of, seen

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


@pytest.fixture
def house(open_house: Callable[..., House], held: HeldModel) -> House:
    """A house whose model answers when it is let."""
    return open_house(model=ModelSettings(name="m", base_url=held.base_url))


@pytest.fixture
def short(house: House) -> House:
    """The same, where whoever says nothing for a few seconds has lost its job."""
    house.settings = replace(house.settings, executors=ExecutorSettings(lease_s=5.0))
    return house


def folders(house: House) -> list[Path]:
    return [*(house.settings.server.data / "executors").glob("benchmax-executor-*")]


def processes_below(folder: Path) -> set[int]:
    """Processes that work in a folder."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if str(folder) in (entry / "environ").read_bytes().decode("utf-8", "replace"):
                    found.add(int(entry.name))
            except OSError:
                continue
    return found


async def none_left(folder: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while left := processes_below(folder):
        assert time.monotonic() < deadline, left
        await asyncio.sleep(0.05)


async def in_the_middle(house: House, held: HeldModel) -> None:
    await seen(held.asked, what="a rollout that asks its model")


async def test_a_job_whose_executor_is_killed_is_finished_by_another_and_judged_once(
    short: House, held: HeldModel
) -> None:
    house = short
    with house.executor() as first, house.executor() as second:
        job = await house.submit(bundle_of("Asks"))
        await in_the_middle(house, held)
        running = await house.job(job)
        mine = await executor_of(house, running.executor_id, first, second)
        other = second if mine is first else first
        before = folders(house)
        mine.send(signal.SIGKILL)
        mine.ended()
        held.let.set()
        ended = await house.over(job)
        assert other.process.poll() is None
    assert ended.state == "done"
    assert ended.attempts > 1
    assert ended.judgement in ("valid", "invalid")
    assert len(await house.told(job, "verdict")) == 1
    assert len(await house.told(job, "end")) == 1
    assert len(before) == 2
    left = folders(house)
    assert len(left) == 1
    await none_left(left[0])
    with house.executor():
        await house.over(await house.submit(bundle_of("Unloadable"), "batch"))
        # the next one to start has cleared up
        assert left[0] not in folders(house)


async def executor_of(house: House, executor_id: str | None, *processes: ExecutorProcess) -> ExecutorProcess:
    alive = await house.database.read(executors.alive, 60.0)
    pid = next(one.pid for one in alive if one.id == executor_id)
    return next(one for one in processes if one.process.pid == pid)


async def test_a_job_that_is_cancelled_ends_soon_and_leaves_nothing_running(house: House, held: HeldModel) -> None:
    with house.executor() as executor:
        job = await house.submit(bundle_of("Asks"))
        await in_the_middle(house, held)
        await house.database.run(jobs.cancel, house.tenant_id, job.id)
        ended = await house.over(job)
        assert (ended.state, ended.judgement, ended.verdict_blob) == ("cancelled", None, None)
        held.let.set()
        # and it takes the next one
        assert (await house.over(await house.submit(bundle_of("Asks"), "batch"))).state == "done"
        assert executor.process.poll() is None


async def test_an_executor_that_was_suspended_for_longer_than_its_lease_writes_nothing_any_more(
    short: House, held: HeldModel
) -> None:
    house = short
    with house.executor() as first:
        job = await house.submit(bundle_of("Asks"))
        await in_the_middle(house, held)
        first.send(signal.SIGSTOP)
        held.let.set()
        with house.executor():
            ended = await house.over(job)
            assert ended.state == "done"
            assert ended.attempts > 1
            told = len(await house.events(job))
            first.send(signal.SIGCONT)
            await said(first, "its lease is lost")
            now = await house.job(job)
            assert (now.fence, now.last_seq, now.verdict_blob) == (ended.fence, ended.last_seq, ended.verdict_blob)
            assert len(await house.events(job)) == told
            # it is of use again
            await house.over(await house.submit(bundle_of("Unloadable"), "batch"))
            assert first.process.poll() is None


async def said(executor: ExecutorProcess, text: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while text not in executor.log.read_text():
        assert time.monotonic() < deadline, executor.log.read_text()
        await asyncio.sleep(0.05)


async def test_an_executor_that_is_to_end_finishes_its_job_first(house: House, held: HeldModel) -> None:
    with house.executor() as executor:
        job = await house.submit(bundle_of("Asks"))
        waiting = await house.submit(bundle_of("Asks"))
        await in_the_middle(house, held)
        executor.send(signal.SIGTERM)
        held.let.set()
        assert executor.ended() == 0
    assert (await house.job(job)).state == "done"
    assert (await house.job(waiting)).state == "queued"
    assert folders(house) == []


async def test_an_executor_whose_time_is_up_gives_its_job_back_and_that_is_no_attempt(
    house: House, held: HeldModel
) -> None:
    house.settings = replace(house.settings, limits=LimitSettings(drain_s=0.0))
    with house.executor() as executor:
        job = await house.submit(bundle_of("Asks"))
        await in_the_middle(house, held)
        executor.send(signal.SIGTERM)
        assert executor.ended() == 0
    given = await house.job(job)
    assert (given.state, given.attempts) == ("queued", 0)
    held.let.set()
    with house.executor():
        ended = await house.over(job)
    assert (ended.state, ended.attempts) == ("done", 1)


async def test_an_executor_whose_server_is_gone_gives_its_job_back_and_ends(house: House, held: HeldModel) -> None:
    reading, writing = os.pipe()
    try:
        with house.executor(watch=reading) as executor:
            job = await house.submit(bundle_of("Asks"))
            await in_the_middle(house, held)
            os.close(writing)
            assert executor.ended() == 0
    finally:
        os.close(reading)
    assert (await house.job(job)).state == "queued"
    assert folders(house) == []


async def test_a_job_that_takes_longer_than_one_may_has_failed(house: House, held: HeldModel) -> None:
    house.settings = replace(house.settings, limits=LimitSettings(job_s=3.0))
    with house.executor():
        ended = await house.over(await house.submit(bundle_of("Asks")))
    assert ended.state == "failed"
    assert ended.error is not None
    assert "3 s" in ended.error


# -- what a job cannot be blamed for ------------------------------------------------------------------------------


@contextlib.contextmanager
def away(house: House) -> Iterator[None]:
    """Have the blob store not answer."""
    folder = Path(house.settings.blobs_url.removeprefix("file://"))
    aside = folder.with_name("aside")
    folder.rename(aside)
    folder.touch()
    try:
        yield
    finally:
        folder.unlink()
        aside.rename(folder)


async def test_results_wait_for_a_blob_store_that_is_away_for_a_while(house: House, held: HeldModel) -> None:
    with house.executor() as executor:
        job = await house.submit(bundle_of("Asks"))
        await in_the_middle(house, held)
        with away(house):
            held.let.set()
            await said(executor, "its results cannot be stored")
        ended = await house.over(job)
    assert (ended.state, ended.attempts, await house.told(job, "end")) == (
        "done",
        1,
        [{"state": "done", "judgement": ended.judgement, "error": None}],
    )


async def test_a_job_that_cannot_be_begun_for_want_of_the_blob_store_is_given_back(
    house: House, held: HeldModel
) -> None:
    with house.executor() as executor:
        first = await house.submit(bundle_of("Asks"))
        await in_the_middle(house, held)
        second = await house.submit(bundle_of("Unloadable"))
        with away(house):
            await house.database.run(jobs.cancel, house.tenant_id, first.id)
            await said(executor, f"job {second.id} is given back")
        ended = await house.over(second)
    assert (ended.state, ended.judgement, ended.attempts) == ("done", "invalid", 1)
