"""An endpoint that says 200 and sends what no client can read."""

from __future__ import annotations

import pytest

from tests.unit.gateway_lab import Asked, Wire, lab


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b'{"choices": [}', b"null", b"[]", b'"42"', b"42", b"\xff\xfe{}", b"[" * 100_000, b"{}{}"],
)
@pytest.mark.parametrize("route", ["chat/completions", "embeddings", "models"])
async def test_what_is_no_json_object_is_an_error_that_is_not_tried_again(body: bytes, route: str) -> None:
    async def broken(_: Asked, wire: Wire) -> None:
        await wire.whole(body)

    async with lab() as made:
        made.endpoint.doing = broken
        session = made.open()
        method, sent = ("GET", b"") if route == "models" else ("POST", b'{"model": "m"}')
        answer = await made.ask(method, f"{session.path}/{route}", key=session.key, body=sent)
        assert (answer.status, answer.code, answer.headers["x-should-retry"]) == (502, "upstream_invalid", "false")
        assert len(answer.body) < 5_000


@pytest.mark.parametrize("status", [100, 101, 199, 204, 205, 304, 399, 600, 999])
async def test_a_status_that_is_no_answer_is_an_error_too(status: int) -> None:
    async def odd(_: Asked, wire: Wire) -> None:
        await wire.send(f"HTTP/1.1 {status} X\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode())
        wire.writer.close()

    async with lab(model_silence_s=5) as made:
        made.endpoint.doing = odd
        answer = await made.post(made.open())
        # what only announces an answer is followed by none
        assert answer.code in ("upstream_invalid", "upstream_closed")
        assert answer.status == 502


async def test_events_that_no_client_can_read_go_on_as_they_are() -> None:
    async def broken(_: Asked, wire: Wire) -> None:
        await wire.begin()
        await wire.event("{not json")
        await wire.event("[DONE]")
        await wire.end()

    async with lab() as made:
        made.endpoint.doing = broken
        answer = await made.post(made.open(), {"model": "m", "messages": [], "stream": True})
        assert answer.body == b"data: {not json\n\ndata: [DONE]\n\n"
