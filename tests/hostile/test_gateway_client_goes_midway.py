"""A client that goes before it has its answer: the model's server is let go of, and the call is told as such."""

from __future__ import annotations

import pytest

from tests.unit.gateway_lab import QUESTION, Asked, Wire, chunk, lab


@pytest.mark.parametrize("when", ["before the answer", "in a stream", "in an endless stream"])
async def test_the_connection_to_the_model_is_closed(when: str) -> None:
    async def go_on(_: Asked, wire: Wire) -> None:
        if when != "before the answer":
            await wire.begin()
            await wire.event(chunk("4"))
        while when == "in an endless stream":
            await wire.event(chunk("4" * 1000))
        await wire.until_gone()

    async with lab() as made:
        made.endpoint.doing = go_on
        session = made.open()
        async with made.asking(session, {**QUESTION, "stream": True}) as client:
            if when == "before the answer":
                await made.endpoint.until(lambda: len(made.endpoint.asked) == 1)
            else:
                await client.until(b'"4"')
        await made.endpoint.until(lambda: made.endpoint.open == 0)
        collected = await session.collect()
        assert [trace.error for trace in collected.traces] == ["client_gone"]
        assert collected.traces[0].status == (0 if when == "before the answer" else 200)


async def test_a_client_that_goes_in_its_own_body_asks_nothing() -> None:
    async with lab() as made:
        session = made.open()
        async with made.client() as client:
            head = (
                f"POST {session.path}/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {session.key}\r\n"
            )
            await client.send(f"{head}content-length: 100\r\n\r\n{{".encode())
        assert (await made.post(session)).status == 200
        assert [asked.json for asked in made.endpoint.asked] == [QUESTION]
        assert session.num_calls == 1


async def test_closing_the_gateway_takes_all_calls_along() -> None:
    async def hang(_: Asked, wire: Wire) -> None:
        await wire.until_gone()

    async with lab() as made:
        made.endpoint.doing = hang
        session = made.open()
        async with made.asking(session) as one, made.asking(session, {**QUESTION, "stream": True}) as other:
            await made.endpoint.until(lambda: len(made.endpoint.asked) == 2)
            await made.gateway.aclose()
            for client in (one, other):
                assert (await client.answer()).status in (0, 401)
        await made.endpoint.until(lambda: made.endpoint.open == 0)
        assert len(made.traces) == 2
