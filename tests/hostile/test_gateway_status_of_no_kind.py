"""Statuses that no standard knows become answers that a client library can read."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.gateway_lab import Asked, Wire, lab


@pytest.mark.parametrize("status", [204, 205, 304, 299, 418, 499, 520, 529, 599, 600, 999])
@pytest.mark.parametrize("body", [b"", b'{"error": {"message": "no", "code": "odd"}}'])
async def test_a_strange_status_is_told_in_openai_s_shape(status: int, body: bytes) -> None:
    async def answer(asked: Asked, wire: Wire) -> None:
        await wire.whole(body, status)

    loop, broken = asyncio.get_running_loop(), []
    loop.set_exception_handler(lambda _, context: broken.append(context))
    async with lab() as made:
        made.endpoint.doing = answer
        got = await made.post(made.open())
        assert got.status == status if body and 200 <= status < 300 and status != 204 else 400 <= got.status < 600
        assert got.json["error"]["code"]
    assert broken == []
