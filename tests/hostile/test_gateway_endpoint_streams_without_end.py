"""An endpoint whose stream never ends, in many events or in one: it is cut, and the client is told."""

from __future__ import annotations

import pytest

from tests.unit.gateway_lab import QUESTION, Asked, Wire, chunk, lab


@pytest.mark.parametrize("in_one", [False, True])
async def test_a_stream_is_cut_at_the_limit(in_one: bool) -> None:
    async def endless(_: Asked, wire: Wire) -> None:
        await wire.begin()
        while True:
            if in_one:
                await wire.chunk(b"x" * 10_000)
            else:
                await wire.event(chunk("x" * 10_000))

    async with lab(answer_bytes=200_000, trace_bytes=10_000) as made:
        made.endpoint.doing = endless
        answer = await made.post(made.open(), {**QUESTION, "stream": True})
        assert answer.events[-1]["error"]["code"] == "answer_too_large"
        assert len(answer.body) < 202_000
        [trace] = made.traces
        assert (trace.error, trace.status) == ("answer_too_large", 200)
        assert len(trace.answer) < 10_000
        await made.endpoint.until(lambda: made.endpoint.open == 0)


async def test_a_client_that_reads_no_further_holds_the_endpoint_back_and_not_in_memory() -> None:
    sent = 0

    async def endless(_: Asked, wire: Wire) -> None:
        nonlocal sent
        await wire.begin()
        while True:
            await wire.event(chunk("x" * 10_000))
            sent += 10_000

    async with lab() as made:
        made.endpoint.doing = endless
        session = made.open()
        async with made.asking(session, {**QUESTION, "stream": True}) as client:
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]  # it is one that reads, too
            before = -1
            while sent != before:
                # nothing more goes in when everything on the way is full
                before = sent
                await made.keep_busy()
            assert sent < 20_000_000
            # and it does not hold up its own end
            await session.close()
        await made.endpoint.until(lambda: made.endpoint.open == 0)
