"""The thread that looks after a worker's event loop: what it reports, when, and what it says when it is asked."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from runner.protocol import Inspect, Inspected, Snapshot, Stalled
from runner.worker.calls import CallState
from runner.worker.watchdog import Watchdog

STALL_S = 0.05


class Setting:
    """A watchdog of this test's loop."""

    def __init__(self) -> None:
        self.calls: dict[int, CallState] = {}
        self.sent: list[Snapshot | Inspected | Stalled] = []
        self.arrived = threading.Condition()
        self.flushed = 0
        self.dog = Watchdog(self.calls, self.send, self.flush)

    def send(self, message: Snapshot | Inspected | Stalled) -> None:
        with self.arrived:
            self.sent.append(message)
            self.arrived.notify_all()

    def flush(self) -> None:
        self.flushed += 1

    @property
    def stalls(self) -> list[Stalled]:
        return [message for message in self.sent if isinstance(message, Stalled)]

    def block_until(self, reached: Callable[[], bool]) -> None:
        """Block the loop, as code of a bundle would, until the watchdog has said something."""
        with self.arrived:
            assert self.arrived.wait_for(reached, timeout=20)

    async def until(self, reached: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 20
        while not reached():
            assert time.monotonic() < deadline
            await asyncio.sleep(0.005)

    def begin(self, number: int = 1, *rollouts: str) -> CallState:
        state = CallState(number, frozenset(rollouts), pending=set(rollouts))
        self.calls[number] = state
        if self.dog.resting:
            self.dog.wake()
        return state

    async def answer(self, call: int | None = None) -> tuple[list[Snapshot], Inspected]:
        """Ask where everything is while the loop waits."""
        while True:
            snapshots, last = await self.answer_now(call)
            # the loop may just have been busy with waiting for the answer
            if "test_worker_watchdog" not in last.where or "in Setting." not in last.where:
                return snapshots, last

    async def answer_now(self, call: int | None) -> tuple[list[Snapshot], Inspected]:
        self.sent.clear()
        self.dog.inspect(Inspect(inspection=7, call=call))
        await self.until(lambda: any(isinstance(message, Inspected) for message in self.sent))
        *snapshots, last = self.sent
        assert isinstance(last, Inspected)
        assert last.inspection == 7
        return [message for message in snapshots if isinstance(message, Snapshot)], last


@pytest.fixture
async def setting() -> AsyncIterator[Setting]:
    setting = Setting()
    setting.dog.start(STALL_S, 1000)
    yield setting
    # the thread ends when it cannot reach the loop any more, which it does not try while it rests
    setting.begin(99)


async def test_a_blocked_loop_is_reported_again_as_it_lasts_and_when_it_is_over(setting: Setting) -> None:
    setting.begin().task = asyncio.current_task()
    await asyncio.sleep(0)
    setting.block_until(lambda: len(setting.stalls) >= 3)
    await setting.until(lambda: setting.stalls[-1].over)
    during, last = setting.stalls[:-1], setting.stalls[-1]
    assert not any(stall.over for stall in during)
    assert [stall.seconds for stall in setting.stalls] == sorted(stall.seconds for stall in setting.stalls)
    # each time it has doubled
    assert during[1].seconds >= 2 * during[0].seconds * 0.9
    assert {(stall.call, stall.where.rpartition(" in ")[2]) for stall in setting.stalls} == {(1, "Setting.block_until")}
    assert "in Setting.block_until" in last.stack
    assert setting.flushed >= 3


async def test_stalls_in_quick_succession_are_counted_and_not_told(setting: Setting) -> None:
    setting.begin()
    await asyncio.sleep(0)
    setting.block_until(lambda: len(setting.stalls) >= 1)
    await setting.until(lambda: setting.stalls[-1].over)
    told = len(setting.stalls)
    flushed = setting.flushed
    # a stall of its own each, and all of them within the quiet time
    while setting.flushed == flushed:
        time.sleep(2 * STALL_S)
        await asyncio.sleep(0.01)
    assert len(setting.stalls) == told
    # a long one is told in the end, with how many there were before
    setting.block_until(lambda: len(setting.stalls) > told)
    assert setting.stalls[told].unreported >= 1


async def test_nothing_is_looked_after_while_nothing_is_in_flight(setting: Setting) -> None:
    assert setting.dog.resting
    time.sleep(3 * STALL_S)
    await asyncio.sleep(0)
    assert setting.sent == []
    setting.begin()
    await setting.until(lambda: not setting.dog.resting)
    setting.calls.clear()
    await setting.until(lambda: setting.dog.resting)


async def test_a_loop_that_waits_is_not_blocked(setting: Setting) -> None:
    setting.begin()
    await asyncio.sleep(5 * STALL_S)
    assert setting.sent == []


async def test_each_rollout_says_where_it_waits_and_what_it_has_said(setting: Setting) -> None:
    async def inner(event: asyncio.Event) -> None:
        await event.wait()

    async def rollout() -> None:
        await inner(asyncio.Event())

    state = setting.begin(3, "a", "b")
    state.task = asyncio.create_task(rollout())
    state.running["a"] = asyncio.create_task(rollout())
    state.transcripts["a"] = [{"role": "user", "content": "hi"}, {"content": "x" * 2000}]
    await asyncio.sleep(0)
    snapshots, last = await setting.answer()
    call, one = snapshots
    assert (call.call, call.rollout_id, call.messages) == (3, None, None)
    assert (one.call, one.rollout_id) == (3, "a")
    assert one.messages is not None
    assert json.loads(one.messages) == [{"role": "user", "content": "hi"}]
    assert one.omitted_bytes > 2000
    for stack in (call.stack, one.stack, last.stack):
        assert stack.index("in test_each_rollout") < stack.index("rollout") < stack.index("inner")
        assert "await event.wait()" in stack
    assert last.where.endswith("inner")
    for task in (state.task, state.running["a"]):
        task.cancel()


async def test_only_the_call_that_is_asked_for_is_told_and_of_several_none_is_singled_out(setting: Setting) -> None:
    for number in (1, 2):
        setting.begin(number).task = asyncio.create_task(asyncio.sleep(60))
    await asyncio.sleep(0)
    snapshots, one = await setting.answer(2)
    assert [snapshot.call for snapshot in snapshots] == [2]
    assert one.where.endswith("in sleep")
    snapshots, several = await setting.answer()
    assert [snapshot.call for snapshot in snapshots] == [1, 2]
    assert several.where == ""
    for state in setting.calls.values():
        assert state.task is not None
        state.task.cancel()


async def test_a_task_that_waits_for_another_goes_on_with_that_ones_stack(setting: Setting) -> None:
    async def innermost() -> None:
        await asyncio.Event().wait()

    async def outer() -> None:
        await asyncio.create_task(innermost())

    setting.begin().task = asyncio.create_task(outer())
    await asyncio.sleep(0.01)
    (snapshot,), _ = await setting.answer()
    assert snapshot.stack.index("outer") < snapshot.stack.index("innermost")
    task = setting.calls[1].task
    assert task is not None
    task.cancel()


async def test_generators_on_the_way_are_part_of_the_stack(setting: Setting) -> None:
    class Waits:
        def __await__(self) -> Any:
            yield from asyncio.Event().wait().__await__()

    async def outer() -> None:
        await Waits()

    setting.begin().task = asyncio.create_task(outer())
    await asyncio.sleep(0.01)
    (snapshot,), _ = await setting.answer()
    assert snapshot.stack.index("outer") < snapshot.stack.index("__await__")
    task = setting.calls[1].task
    assert task is not None
    task.cancel()
