"""An endpoint that takes a request and says nothing, or stops in the middle: the client is told so."""

from __future__ import annotations

import pytest

from tests.unit.gateway_lab import QUESTION, Asked, Wire, chunk, lab


async def test_an_endpoint_that_says_nothing_is_a_timeout_that_may_be_tried_again() -> None:
    async with lab(model_silence_s=0.1) as made:

        async def hang(_: Asked, wire: Wire) -> None:
            await wire.until_gone()

        made.endpoint.doing = hang
        answer = await made.post(made.open())
        assert (answer.status, answer.code, answer.headers["x-should-retry"]) == (504, "upstream_timeout", "true")
        assert "sent nothing for 0.1 s" in answer.json["error"]["message"]
        await made.endpoint.until(lambda: made.endpoint.open == 0)


async def test_an_endpoint_that_stops_in_the_middle_of_a_body_is_one_too() -> None:
    async with lab(model_silence_s=0.1) as made:

        async def half(_: Asked, wire: Wire) -> None:
            await wire.send(b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{"a')
            await wire.until_gone()

        made.endpoint.doing = half
        assert (await made.post(made.open())).code == "upstream_timeout"


async def test_a_stream_that_stops_ends_with_the_reason_as_its_last_event() -> None:
    async with lab(model_silence_s=0.1) as made:

        async def stop(_: Asked, wire: Wire) -> None:
            await wire.begin()
            await wire.event(chunk("4"))
            await wire.until_gone()

        made.endpoint.doing = stop
        answer = await made.post(made.open(), {**QUESTION, "stream": True})
        assert answer.status == 200
        assert answer.events[0]["choices"][0]["delta"] == {"content": "4"}
        assert answer.events[-1]["error"]["code"] == "upstream_timeout"
        assert made.traces[0].error == "upstream_timeout"
        await made.endpoint.until(lambda: made.endpoint.open == 0)


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/v1", "http://name.invalid/v1"])
async def test_an_endpoint_that_is_not_there_is_unreachable(url: str) -> None:
    async with lab() as made:
        session = made.open(upstream=made.gateway.upstream(url, made.keys))
        answer = await made.post(session)
        assert (answer.status, answer.code, answer.headers["x-should-retry"]) == (502, "upstream_unreachable", "true")
