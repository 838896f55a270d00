"""What a call may ask headers for knows when a worker works on it: keys that stand in for credentials end with that."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from runner.broker import CallScope
from runner.calls import Death
from runner.conversation import Conversation, Position
from runner.errors import WorkerLostError
from runner.limits import Limits
from runner.protocol import CallDone, CallFailed, Cancel, GroupDone
from runner.rollout_call import RolloutCall
from tests.unit.test_calls import FAILURE, Setting, plain, request


class Watched(CallScope):
    """Counts who works on it."""

    __slots__ = ("over", "workers")

    def __init__(self) -> None:
        super().__init__({})
        self.workers = 0
        self.over: list[str] = []

    def enter(self) -> None:
        self.workers += 1

    def leave(self) -> None:
        self.workers -= 1
        assert self.workers >= 0, "left twice"

    def end(self, *rollout_ids: str) -> None:
        super().end(*rollout_ids)
        self.over += rollout_ids


def begin(it: Conversation, scope: CallScope, *names: str) -> RolloutCall:
    return it.begin([request(name) for name in names], [Position(1, 0)] * len(names), scope)


@pytest.fixture
async def setting() -> Setting:
    return Setting()


@pytest.mark.parametrize(
    "message",
    [GroupDone(call=1, outcomes=[plain()]), CallFailed(call=1, failure=FAILURE)],
    ids=["ended", "raised"],
)
async def test_it_is_left_with_the_workers_answer(setting: Setting, message: GroupDone | CallFailed) -> None:
    scope = Watched()
    call = begin(setting.it, scope, "a")
    assert scope.workers == 1
    setting.hear(message)
    assert scope.workers == 0
    assert call.over


async def test_it_is_left_with_the_workers_death_and_with_the_callers_close(setting: Setting) -> None:
    lost, closed = Watched(), Watched()
    begin(setting.it, lost, "a")
    setting.it.died(Death("The worker is gone."))
    assert lost.workers == 0
    begin(setting.it, closed, "b")
    setting.it.closing()
    assert closed.workers == 0
    setting.it.died(Death("The worker is gone."))
    assert closed.workers == 0


async def test_it_is_left_as_soon_as_the_caller_is_cancelled(setting: Setting) -> None:
    scope = Watched()
    call = begin(setting.it, scope, "a")
    waiting = asyncio.ensure_future(setting.it.finish(call))
    await asyncio.sleep(0)
    waiting.cancel()
    await setting.sent_message(Cancel)
    # its worker has not stopped yet
    assert scope.workers == 0
    setting.hear(CallFailed(call=1, failure=FAILURE))
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert scope.workers == 0


async def test_a_rollouts_deadline_ends_the_late_and_leaves_the_group_its_scoring() -> None:
    setting, scope = Setting(Limits(rollout_s=0.01)), Watched()
    begin(setting.it, scope, "a", "b")
    while not scope.over:
        await asyncio.sleep(0.001)
    assert sorted(scope.over) == ["a", "b"]
    assert scope.workers == 1
    setting.it.died(Death("The worker is gone."))
    assert scope.workers == 0


async def test_constructing_and_each_making_of_a_dataset_count_by_themselves(setting: Setting) -> None:
    scope = Watched()
    setting.it.open_scope(scope)
    making = asyncio.ensure_future(setting.it.create_dataset("eval", Path("/data"), None, scope))
    await asyncio.sleep(0)
    assert scope.workers == 2
    setting.it.close_scope()
    setting.it.close_scope()
    assert scope.workers == 1
    setting.hear(CallDone(call=1))
    await making
    assert scope.workers == 0
    with pytest.raises(WorkerLostError):
        await _lost(setting, scope)
    assert scope.workers == 0


async def _lost(setting: Setting, scope: CallScope) -> None:
    making = asyncio.ensure_future(setting.it.create_dataset("eval", Path("/data"), None, scope))
    await asyncio.sleep(0)
    setting.it.died(Death("The worker is gone."))
    await making
