"""Many large requests at the same time, none of which gets an answer, take no more memory than is meant for them."""

from __future__ import annotations

import asyncio
from functools import partial

from runner.limits import MIB
from tests.unit.gateway_lab import MODEL, Answered, Asked, Endpoint, Wire, answer_plainly, lab


async def hang(asked: Asked, wire: Wire) -> None:
    await wire.until_gone()


def more_than(count: int, endpoint: Endpoint) -> bool:
    return len(endpoint.asked) > count


async def test_what_all_requests_hold_together_is_bounded() -> None:
    async with lab(requests_bytes=8 * MIB) as made:
        made.endpoint.doing = hang
        session = made.open()
        large = {"model": MODEL, "messages": [{"role": "user", "content": "x" * MIB}]}
        waiting = []
        refused: Answered | None = None
        while refused is None:
            waiting.append(asyncio.ensure_future(made.post(session, large)))
            asked = len(made.endpoint.asked)
            there = asyncio.ensure_future(made.endpoint.until(partial(more_than, asked, made.endpoint)))
            await asyncio.wait([waiting[-1], there], return_when=asyncio.FIRST_COMPLETED)
            if not there.done():
                there.cancel()
                refused = await waiting.pop()
        assert 1 <= len(waiting) <= 8
        assert (refused.status, refused.code) == (503, "gateway_busy")
        assert refused.headers["x-should-retry"] == "true"
        # what is small still fits
        waiting.append(asyncio.ensure_future(made.post(session)))
        await made.endpoint.until(lambda: len(made.endpoint.asked) == len(waiting))
        await session.close()
        await asyncio.gather(*waiting)
        # what they held is free again
        made.endpoint.doing = answer_plainly
        again = made.open("again")
        for _ in range(10):
            assert (await made.post(again, large)).status == 200
