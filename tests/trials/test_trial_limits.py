"""How much a trial sandbox may take, and that a trial can only ask for less."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import get_args

import pytest

from runner.limits import MIB, Limits
from runner.sandbox.policy import SandboxPolicy
from runner.trials.desk import TrialDesk, TrialRefusedError
from runner.trials.request import TrialRequest, bounded_limits
from tests.confined import Caller
from tests.trials.talking import EndedError, Talk, opened

FULL = "Resource temporarily unavailable"
BOMB = """python3 -c '
import os, time
try:
    for _ in range(int(os.environ["COUNT"])):
        if os.fork() == 0:
            os.closerange(0, 3)
            time.sleep(1000)
except OSError as error:
    print(error.strerror, flush=True)
os._exit(0)
'"""
ANY = TrialRequest(rollout_id="trial")


def test_a_trial_can_only_make_limits_smaller() -> None:
    limits = Limits(trial_memory_bytes=100, trial_disk_bytes=None, cpus=2.0, trial_processes=7)
    asked = TrialRequest(rollout_id="r", memory_bytes=200, disk_bytes=50, cpus=1.0)
    found = bounded_limits(asked, limits)
    assert (found.memory_bytes, found.disk_bytes, found.cpus, found.processes) == (100, 50, 1.0, 7)
    found = bounded_limits(ANY, limits)
    assert (found.memory_bytes, found.disk_bytes, found.cpus) == (100, None, 2.0)


@pytest.mark.parametrize("wanted", [{"cpus": 0.0}, {"memory_bytes": 0}, {"disk_bytes": -1}, {"cpus": float("nan")}])
def test_nothing_cannot_be_asked_for(wanted: dict[str, float]) -> None:
    with pytest.raises(TrialRefusedError, match="Ask for more than nothing"):
        bounded_limits(TrialRequest(rollout_id="r", **wanted), Limits())  # type: ignore[arg-type]


@pytest.mark.parametrize("caller", get_args(Caller))
def test_a_process_with_too_much_memory_fails_and_the_sandbox_goes_on(caller: Caller) -> None:
    with opened(caller, memory_bytes=300 * MIB) as talk:
        done = talk.run("python3 -c 'x = bytearray(400 * 2**20)'")
        assert "MemoryError" in done.err or done.signal == 9 or done.exit == 137
        assert talk.said("echo on") == "on"


@pytest.mark.parametrize("caller", get_args(Caller))
def test_a_sandbox_that_writes_too_much_is_ended(caller: Caller) -> None:
    with opened(caller, disk_bytes=64 * MIB) as talk, pytest.raises(EndedError):
        talk.run("head -c 100M /dev/zero > /usr/local/lib/large; sleep 1000")


async def opened_at(desk: TrialDesk, request: TrialRequest, use: Callable[[Talk], None]) -> None:
    def work(stream: socket.socket) -> None:
        talk = Talk(stream)
        try:
            use(talk)
        finally:
            talk.close()

    await asyncio.to_thread(work, await desk.open(request))


async def test_processes_are_counted_over_all_users_and_the_next_command_is_told() -> None:
    def use(talk: Talk) -> None:
        several = talk.ready["users"] == "range"
        assert talk.said(BOMB, env={"COUNT": "40" if several else "100"}) == ("" if several else FULL)
        if several:
            # what the first has left stays
            assert talk.said(BOMB, env={"COUNT": "40"}, user="agent") == FULL

    desk = TrialDesk(Limits(trial_processes=60), SandboxPolicy())
    try:
        await opened_at(desk, ANY, use)
    finally:
        await desk.aclose()


def waits(desk: TrialDesk, rollout_id: str, order: list[str]) -> asyncio.Task[socket.socket]:
    """Ask for a sandbox beside others; the rollout is put into `order` when it has one."""

    async def wait() -> socket.socket:
        stream = await desk.open(TrialRequest(rollout_id=rollout_id))
        order.append(rollout_id)
        return stream

    return asyncio.ensure_future(wait())


async def test_beyond_so_many_at_once_they_wait_in_the_order_asked_for() -> None:
    desk = TrialDesk(Limits(trial_sandboxes=1), SandboxPolicy())
    order: list[str] = []
    try:
        first = await desk.open(ANY)
        waiting = [waits(desk, f"r{number}", order) for number in range(4)]
        await asyncio.sleep(0)
        waiting[1].cancel()
        first.close()
        for number in (0, 2, 3):
            stream = await waiting[number]
            assert order[-1] == f"r{number}"
            stream.close()
        assert order == ["r0", "r2", "r3"]
        assert waiting[1].cancelled()
    finally:
        await desk.aclose()


async def test_a_turn_that_comes_with_the_cancellation_goes_to_the_next() -> None:
    desk = TrialDesk(Limits(trial_sandboxes=1), SandboxPolicy())
    order: list[str] = []
    try:
        first = await desk.open(ANY)
        waiting = [waits(desk, f"r{number}", order) for number in range(2)]
        await asyncio.sleep(0)
        first.close()
        while desk._waiting and len(desk._waiting) == 2:
            await asyncio.sleep(0)
        # it is this one's turn by now
        waiting[0].cancel()
        (await waiting[1]).close()
        assert order == ["r1"]
    finally:
        await desk.aclose()


async def test_rollouts_that_hold_all_and_wait_for_more_do_not_wait_for_ever() -> None:
    desk = TrialDesk(Limits(trial_sandboxes=2), SandboxPolicy())
    order: list[str] = []
    try:
        held = [await desk.open(TrialRequest(rollout_id=name)) for name in ("a", "b")]
        waiting = [waits(desk, name, order) for name in ("other", "a")]
        await asyncio.sleep(0)
        with pytest.raises(TrialRefusedError, match=r"waits for another one.*max_concurrent_trials.*trial_sandboxes"):
            await desk.open(TrialRequest(rollout_id="b"))
        # whoever lets go of the one it has can wait for the next
        held[1].close()
        waiting.append(waits(desk, "b", order))
        for each in waiting:
            (await each).close()
        held[0].close()
        assert order == ["other", "a", "b"]
    finally:
        await desk.aclose()


async def test_those_that_wait_are_told_when_the_worker_has_ended() -> None:
    desk = TrialDesk(Limits(trial_sandboxes=1), SandboxPolicy())
    with await desk.open(ANY):
        waiting = waits(desk, "r", [])
        await asyncio.sleep(0)
        await desk.aclose()
        with pytest.raises(TrialRefusedError, match="the worker has ended"):
            await waiting


async def test_a_sandbox_ends_when_its_time_is_over_and_with_its_desk() -> None:
    brief = TrialDesk(Limits(trial_s=0.01), SandboxPolicy())
    desk = TrialDesk(Limits(), SandboxPolicy())
    for each in (brief, desk):
        talk = Talk(await each.open(ANY))
        talk.ask(op="exec", command="sleep 1000")
        if each is desk:
            await desk.aclose()
        with pytest.raises(EndedError):
            await asyncio.to_thread(talk.frame)
        talk.close()
        await each.aclose()
        with pytest.raises(TrialRefusedError, match="has ended"):
            await each.open(ANY)


def test_a_desk_ends_its_sandboxes_without_a_loop() -> None:
    async def open_one() -> tuple[TrialDesk, socket.socket]:
        desk = TrialDesk(Limits(), SandboxPolicy())
        return desk, await desk.open(ANY)

    loop = asyncio.new_event_loop()
    desk, stream = loop.run_until_complete(open_one())
    pending = asyncio.all_tasks(loop)
    for task in pending:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
    loop.close()
    desk.abandon()
    assert stream.fileno() == -1
