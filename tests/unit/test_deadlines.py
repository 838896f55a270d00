"""Deadlines that share a timer: each rings once, in order, unless it was stopped before."""

from __future__ import annotations

import asyncio

from runner.deadlines import Deadlines


class Rung:
    def __init__(self, seconds: float) -> None:
        self.got: list[str] = []
        self.news = asyncio.Event()
        self.deadlines: Deadlines[str] = Deadlines(seconds, self.ring)

    def ring(self, name: str) -> None:
        self.got.append(name)
        self.news.set()

    async def until(self, count: int) -> None:
        while len(self.got) < count:
            self.news.clear()
            await self.news.wait()


async def test_each_rings_in_the_order_in_which_it_began() -> None:
    rung = Rung(0.01)
    for name in "abc":
        rung.deadlines.start(name)
    await rung.until(3)
    assert rung.got == ["a", "b", "c"]


async def test_what_began_later_rings_later_although_there_is_one_timer() -> None:
    rung = Rung(0.02)
    rung.deadlines.start("first")
    await rung.until(1)
    began = asyncio.get_running_loop().time()
    rung.deadlines.start("second")
    await rung.until(2)
    assert asyncio.get_running_loop().time() - began >= 0.02


async def test_what_was_stopped_does_not_ring_and_the_others_do() -> None:
    rung = Rung(0.01)
    for name in ("first", "stopped", "last"):
        rung.deadlines.start(name)
    rung.deadlines.stop("first")
    rung.deadlines.stop("stopped")
    rung.deadlines.stop("never counted")
    await rung.until(1)
    assert rung.got == ["last"]


async def test_one_that_rang_can_begin_again_from_its_own_call() -> None:
    rung = Rung(0.005)
    deadlines: Deadlines[str]

    def again(name: str) -> None:
        rung.ring(name)
        if len(rung.got) < 3:
            deadlines.start(name)

    deadlines = Deadlines(0.005, again)
    deadlines.start("a")
    await rung.until(3)
    assert rung.got == ["a", "a", "a"]


async def test_after_closing_nothing_rings() -> None:
    rung, other = Rung(0.005), Rung(0.02)
    rung.deadlines.start("a")
    rung.deadlines.close()
    rung.deadlines.close()
    other.deadlines.start("b")
    await other.until(1)
    assert rung.got == []


async def test_many_that_are_stopped_leave_one_timer() -> None:
    loop = asyncio.get_running_loop()
    timers: list[object] = []
    deadlines: Deadlines[int] = Deadlines(60, timers.append)
    before = len(getattr(loop, "_scheduled"))  # noqa: B009 - asyncio shows its timers nowhere else
    for number in range(1000):
        deadlines.start(number)
        deadlines.stop(number)
    assert len(getattr(loop, "_scheduled")) - before == 1  # noqa: B009 - as above
    deadlines.close()
