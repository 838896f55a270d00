"""An endpoint that says 429: its answer arrives as it is, with when to come back where it says so."""

from __future__ import annotations

import openai
import pytest

from tests.unit.gateway_lab import MODEL, Asked, Wire, completion, lab

BUSY = {"error": {"message": "slow down", "type": "rate_limit_error", "param": None, "code": "rate_limit_exceeded"}}


@pytest.mark.parametrize("headers", [[], [("retry-after", "7"), ("x-ratelimit-reset-requests", "7s")]])
async def test_the_answer_and_when_to_come_back_arrive(headers: list[tuple[str, str]]) -> None:
    async def busy(_: Asked, wire: Wire) -> None:
        await wire.whole(BUSY, 429, headers=headers)

    async with lab() as made:
        made.endpoint.doing = busy
        answer = await made.post(made.open())
        assert (answer.status, answer.json) == (429, BUSY)
        assert [(name, answer.headers.get(name)) for name, _ in headers] == headers
        assert len(made.endpoint.asked) == 1
        assert made.traces[0].error == "rate_limit_exceeded"


async def test_a_client_that_is_told_when_to_come_back_does() -> None:
    async def busy(_: Asked, wire: Wire) -> None:
        await wire.whole(BUSY, 429, headers=[("retry-after-ms", "1")])

    async def free(_: Asked, wire: Wire) -> None:
        await wire.whole(completion())

    async with lab() as made:
        made.endpoint.script(busy, free)
        session = made.open()
        async with openai.AsyncOpenAI(api_key=session.key, base_url=made.url(session)) as client:
            answer = await client.chat.completions.create(model=MODEL, messages=[])
        assert answer.choices[0].message.content == "42"
        assert [trace.status for trace in made.traces] == [429, 200]


async def test_a_client_that_does_not_come_back_has_the_error_of_its_library() -> None:
    async def busy(_: Asked, wire: Wire) -> None:
        await wire.whole(BUSY, 429)

    async with lab() as made:
        made.endpoint.doing = busy
        session = made.open()
        async with openai.AsyncOpenAI(api_key=session.key, base_url=made.url(session), max_retries=0) as client:
            with pytest.raises(openai.RateLimitError) as caught:
                await client.chat.completions.create(model=MODEL, messages=[])
        assert caught.value.code == "rate_limit_exceeded"
