"""An endpoint that quotes what it was sent: the worker does not get the credential that way."""

from __future__ import annotations

import json

import pytest

from tests.unit.gateway_lab import QUESTION, SECRET, Asked, Wire, chunk, completion, lab


@pytest.mark.parametrize("status", [200, 400, 401, 403, 404, 418, 500])
async def test_no_whole_answer_shows_it(status: int) -> None:
    async def echo(asked: Asked, wire: Wire) -> None:
        text = json.dumps(asked.headers)
        body = completion(text) if status == 200 else {"error": {"message": text, "code": text}}
        await wire.whole(body, status, headers=[("x-request-id", SECRET), ("set-cookie", f"key={SECRET}")])

    async with lab() as made:
        made.endpoint.doing = echo
        session = made.open()
        async with made.asking(session) as client:
            await client.answer()
            assert SECRET.encode() not in client.got
            assert b"set-cookie" not in client.got.lower()
        assert SECRET not in repr(made.traces)
        assert SECRET not in repr(await session.collect())


async def test_no_event_shows_it() -> None:
    async def echo(asked: Asked, wire: Wire) -> None:
        await wire.begin()
        await wire.event(chunk(asked.headers["authorization"]))
        await wire.event({"error": {"message": asked.headers["authorization"]}})
        await wire.end()

    async with lab() as made:
        made.endpoint.doing = echo
        answer = await made.post(made.open(), {**QUESTION, "stream": True})
        assert "[redacted]" in answer.body.decode()
        assert SECRET not in answer.body.decode()


async def test_no_page_shows_it() -> None:
    async def echo(asked: Asked, wire: Wire) -> None:
        await wire.whole(asked.headers["authorization"].encode(), 200, content_type="text/plain")

    async with lab() as made:
        made.endpoint.doing = echo
        answer = await made.post(made.open())
        assert answer.code == "upstream_invalid"
        assert SECRET not in answer.body.decode()


async def test_no_redirect_shows_it() -> None:
    async def echo(_: Asked, wire: Wire) -> None:
        await wire.whole(b"", 307, headers=[("location", f"http://{SECRET}/v1")])

    async with lab() as made:
        made.endpoint.doing = echo
        assert SECRET not in (await made.post(made.open())).body.decode()


async def test_a_cookie_of_one_call_does_not_come_back_with_the_next() -> None:
    async def set_one(_: Asked, wire: Wire) -> None:
        await wire.whole(completion(), headers=[("set-cookie", "who=first; Path=/")])

    async with lab() as made:
        made.endpoint.doing = set_one
        session = made.open()
        await made.post(session)
        await made.post(session)
        assert all("cookie" not in asked.headers for asked in made.endpoint.asked)
