"""An event loop stays awake for what comes at once, and for nothing else."""

from __future__ import annotations

import asyncio
import os
import time

import pytest

from runner import spinning
from runner.spinning import PENALTY, QUICK, Spin


async def turns_while(seconds: float) -> int:
    """How often the loop turns within some time without anything to do of its own."""
    loop = asyncio.get_running_loop()
    select = loop._selector.select  # type: ignore[attr-defined]
    count = 0

    def counted(timeout: float | None = None) -> object:
        nonlocal count
        count += 1
        return select(timeout)

    loop._selector.select = counted  # type: ignore[attr-defined]
    try:
        await asyncio.sleep(seconds)
    finally:
        loop._selector.select = select  # type: ignore[attr-defined]
    return count


def answered_at_once(spin: Spin, times: int) -> None:
    for _ in range(times):
        spin.begin()
        spin.end()


@pytest.fixture(autouse=True)
def several_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A moment that is long enough for a busy machine."""
    monkeypatch.setattr(spinning, "SPIN_S", 0.05)


async def test_a_loop_stays_awake_after_a_few_answers_that_came_at_once() -> None:
    spin = Spin()
    answered_at_once(spin, QUICK)
    spin.begin()
    assert await turns_while(0.02) > 5
    spin.end()
    assert await turns_while(0.02) <= 5


async def test_a_loop_sleeps_before_that() -> None:
    spin = Spin()
    answered_at_once(spin, QUICK - 1)
    spin.begin()
    assert await turns_while(0.02) <= 5


async def test_an_answer_that_took_longer_begins_the_count_anew() -> None:
    spin = Spin()
    answered_at_once(spin, QUICK - 1)
    spin.begin()
    time.sleep(0.06)
    spin.end()
    answered_at_once(spin, QUICK - 1)
    spin.begin()
    assert await turns_while(0.02) <= 5


async def test_a_loop_that_stayed_awake_in_vain_sleeps_for_long_after() -> None:
    spin = Spin()
    answered_at_once(spin, QUICK)
    spin.begin()
    await asyncio.sleep(0.1)
    assert await turns_while(0.02) <= 5
    spin.end()
    answered_at_once(spin, PENALTY)
    spin.begin()
    assert await turns_while(0.02) <= 5
    spin.end()
    answered_at_once(spin, QUICK)
    spin.begin()
    assert await turns_while(0.02) > 5


async def test_on_a_single_processor_a_loop_always_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    spin = Spin()
    answered_at_once(spin, 10 * QUICK)
    spin.begin()
    assert await turns_while(0.02) <= 5


async def test_an_end_without_a_beginning_changes_nothing() -> None:
    spin = Spin()
    for _ in range(10 * QUICK):
        spin.end()
    spin.begin()
    assert await turns_while(0.02) <= 5
