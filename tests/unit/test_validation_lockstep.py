"""Rollouts whose calls of the model go on together."""

from __future__ import annotations

import asyncio

import pytest

from runner.gateway.exchange import Answer, ModelCall
from runner.validation.lockstep import MAX_VAIN, Lockstep
from runner.validation.tape import Given, Through
from tests.unit.recording_lab import asking


class Counting:
    """A model that notes who asks."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def send(self, call: ModelCall) -> Answer:
        self.asked.append(call.session)
        return Given.of({})


async def test_nobody_is_answered_before_all_have_asked() -> None:
    model, lockstep = Counting(), Lockstep(Through(), ["a", "b"])
    first = asyncio.create_task(lockstep.upstream("a", None, model).send(asking()))
    await asyncio.sleep(0)
    assert not model.asked
    await lockstep.upstream("b", None, model).send(asking())
    await first
    assert len(model.asked) == 2


async def test_who_has_ended_is_not_waited_for() -> None:
    model, lockstep = Counting(), Lockstep(Through(), ["a", "b"])
    first = asyncio.create_task(lockstep.upstream("a", None, model).send(asking()))
    await asyncio.sleep(0)
    lockstep.ended(["b"])
    await first
    await lockstep.upstream("a", None, model).send(asking(1))
    assert len(model.asked) == 2


async def test_calls_under_bindings_do_not_wait() -> None:
    model, lockstep = Counting(), Lockstep(Through(), ["a", "b"])
    await lockstep.upstream("a", "judge", model).send(asking(binding="judge"))
    assert len(model.asked) == 1


@pytest.mark.timeout(10)
async def test_who_never_asks_is_waited_for_a_few_times_only() -> None:
    model, lockstep = Counting(), Lockstep(Through(), ["a", "b"])
    for number in range(MAX_VAIN + 50):
        await lockstep.upstream("a", None, model).send(asking(number))
    assert len(model.asked) == MAX_VAIN + 50
