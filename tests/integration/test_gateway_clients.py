"""The OpenAI client library through a gateway: what it makes of answers, streams and refusals."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest

from runner.gateway.budget import Budget
from runner.gateway.session import Session
from tests.unit.gateway_lab import MODEL, Asked, Lab, Wire, chunk, lab

MESSAGES: Any = [{"role": "user", "content": "6 times 7?"}]


@contextlib.asynccontextmanager
async def client_of(made: Lab, session: Session, **options: Any) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(api_key=session.key, base_url=made.url(session), **options) as client:
        yield client


async def test_a_whole_and_a_streamed_answer_are_what_the_model_said() -> None:
    async with lab() as made:
        session = made.open()
        async with client_of(made, session) as client:
            whole = await client.chat.completions.create(model=MODEL, messages=MESSAGES)
            assert whole.choices[0].message.content == "42"
            stream = await client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)
            assert "".join([event.choices[0].delta.content or "" async for event in stream]) == "42"
            assert [found.id async for found in client.models.list()] == [MODEL]


async def test_an_event_arrives_before_the_next_one_is_made() -> None:
    async with lab() as made:
        seen = asyncio.Event()

        async def word_by_word(_: Asked, wire: Wire) -> None:
            await wire.begin()
            await wire.event(chunk("4"))
            # what is held back until there is more would never arrive
            await seen.wait()
            await wire.event(chunk("2", finish="stop"))
            await wire.event("[DONE]")
            await wire.end()

        made.endpoint.doing = word_by_word
        async with client_of(made, made.open()) as client:
            stream = await client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)
            words = []
            async for event in stream:
                words.append(event.choices[0].delta.content)
                seen.set()
            assert words == ["4", "2"]


async def test_a_conversation_without_room_left_has_the_code_that_ends_it_and_is_not_asked_again() -> None:
    async with lab() as made:
        session = made.open(budget=Budget(context_tokens=12))
        async with client_of(made, session) as client:
            await client.chat.completions.create(model=MODEL, messages=MESSAGES)
            with pytest.raises(openai.BadRequestError) as caught:
                await client.chat.completions.create(model=MODEL, messages=MESSAGES)
        assert caught.value.code == "context_budget_exceeded"
        assert len(made.endpoint.asked) == 1


async def test_a_key_that_is_used_up_is_an_authentication_error() -> None:
    async with lab() as made:
        session = made.open()
        await session.collect()
        async with client_of(made, session) as client:
            with pytest.raises(openai.AuthenticationError) as caught:
                await client.chat.completions.create(model=MODEL, messages=MESSAGES)
        assert caught.value.code == "session_over"


async def test_a_refusal_that_passes_is_asked_again_by_the_client_and_one_that_stays_is_not() -> None:
    async def busy(_: Asked, wire: Wire) -> None:
        error = {"error": {"message": "slow down", "type": "rate_limit_error", "param": None, "code": "rate_limit"}}
        await wire.whole(error, 429, headers=[("retry-after-ms", "1")])

    async def plainly(_: Asked, wire: Wire) -> None:
        await wire.whole({"choices": []})

    async with lab() as made:
        made.endpoint.script(busy, plainly)
        async with client_of(made, made.open()) as client:
            await client.chat.completions.create(model=MODEL, messages=MESSAGES)
        assert len(made.endpoint.asked) == 2


async def test_a_stream_that_breaks_off_raises_the_reason() -> None:
    async def break_off(_: Asked, wire: Wire) -> None:
        await wire.begin()
        await wire.event(chunk("4"))
        wire.writer.transport.abort()

    async with lab() as made:
        made.endpoint.doing = break_off
        async with client_of(made, made.open()) as client:
            stream = await client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)
            words = []
            with pytest.raises(openai.APIError, match="closed the connection midway"):
                async for event in stream:
                    words.append(event.choices[0].delta.content)
            assert words == ["4"]
