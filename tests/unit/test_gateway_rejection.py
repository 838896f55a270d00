"""A source is told once that its headers were refused, by whoever comes first."""

from __future__ import annotations

import asyncio

import pytest

from runner.gateway.rejection import REMEMBERED, Rejections

OLD = {"Authorization": "Bearer old"}


class Source:
    def __init__(self) -> None:
        self.told = 0
        self.may_answer = asyncio.Event()
        self.is_told = asyncio.Event()

    async def __call__(self) -> bool:
        self.told += 1
        self.is_told.set()
        await self.may_answer.wait()
        return True


async def test_many_calls_with_the_same_headers_tell_the_source_once() -> None:
    source, rejections = Source(), Rejections()
    asking = [asyncio.ensure_future(rejections.tell(dict(OLD), source, since=0)) for _ in range(50)]
    await source.is_told.wait()
    source.may_answer.set()
    assert await asyncio.gather(*asking) == [True] * 50
    assert source.told == 1
    # one that began before comes late
    assert await rejections.tell(OLD, source, since=0)
    assert source.told == 1
    # and one that got the same headers again afterwards has news
    assert await rejections.tell(OLD, source, since=rejections.count)
    assert source.told == 2
    assert await rejections.tell({"Authorization": "Bearer newer"}, source, since=0)
    assert source.told == 3


async def test_one_that_stops_waiting_does_not_stop_the_others() -> None:
    source, rejections = Source(), Rejections()
    first = asyncio.ensure_future(rejections.tell(OLD, source, since=0))
    await source.is_told.wait()
    second = asyncio.ensure_future(rejections.tell(OLD, source, since=0))
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    source.may_answer.set()
    assert await second
    assert source.told == 1


async def test_a_source_that_nobody_waits_for_is_stopped_and_asked_anew() -> None:
    source, rejections = Source(), Rejections()
    first = asyncio.ensure_future(rejections.tell(OLD, source, since=0))
    await source.is_told.wait()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    source.may_answer.set()
    assert await rejections.tell(OLD, source, since=0)
    assert source.told == 2


async def test_a_source_that_fails_fails_all_that_wait_and_is_asked_anew() -> None:
    rejections = Rejections()
    told = []

    async def broken() -> bool:
        told.append(1)
        await asyncio.sleep(0)
        raise RuntimeError("sign-in is down")

    results = await asyncio.gather(*(rejections.tell(OLD, broken, since=0) for _ in range(3)), return_exceptions=True)
    assert [str(result) for result in results] == ["sign-in is down"] * 3
    assert len(told) == 1
    with pytest.raises(RuntimeError):
        await rejections.tell(OLD, broken, since=0)
    assert len(told) == 2


async def test_what_was_settled_long_ago_is_forgotten() -> None:
    rejections = Rejections()

    async def never() -> bool:
        return False

    for number in range(REMEMBERED + 10):
        assert not await rejections.tell({"Authorization": f"Bearer {number}"}, never, since=0)
    assert len(rejections._settled) == REMEMBERED
