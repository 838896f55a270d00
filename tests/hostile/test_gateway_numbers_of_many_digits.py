"""Numbers in requests go on as they were written, or are refused; none becomes another, and none breaks anything."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.unit.gateway_lab import QUESTION, lab


@pytest.mark.parametrize(
    "number", ["9007199254740993", "123456789012345678901234567890", "-18446744073709551617", "1e308"]
)
async def test_a_number_goes_on_as_it_is(number: str) -> None:
    async with lab() as made:
        body = json.dumps(QUESTION)[:-1] + f', "metadata": {{"id": {number}}}}}'
        answer = await made.post(made.open(), body.encode())
        assert answer.status == 200
        assert made.endpoint.asked[0].json["metadata"]["id"] == json.loads(number)


@pytest.mark.parametrize("number", ["9" * 5_000, "1" + "0" * 100_000, "1e999999999", "-" + "9" * 5_000])
async def test_a_number_of_many_digits_breaks_nothing(number: str) -> None:
    loop, broken = asyncio.get_running_loop(), []
    loop.set_exception_handler(lambda _, context: broken.append(context))
    async with lab(context_tokens=1_000) as made:
        for field in ("max_tokens", "temperature", "seed"):
            body = json.dumps(QUESTION)[:-1] + f', "{field}": {number}}}'
            answer = await made.post(made.open(field), body.encode())
            assert answer.status in (200, 400)
    assert broken == []
