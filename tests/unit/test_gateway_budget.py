"""What a session may take: the length of its conversation, calls, and tokens, each refused with a code of its own."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from runner.gateway.budget import Budget
from runner.limits import Limits
from tests.unit.gateway_lab import QUESTION, Asked, Wire, chunk, completion, lab


async def test_a_conversation_that_has_filled_its_context_is_refused_before_anything_is_sent() -> None:
    async with lab() as made:
        session = made.open(budget=Budget(context_tokens=12))
        assert (await made.post(session)).status == 200
        refused = await made.post(session)
        assert (refused.status, refused.code) == (400, "context_budget_exceeded")
        assert refused.json["error"].keys() == {"message", "type", "param", "code"}
        assert refused.headers["x-should-retry"] == "false"
        assert len(made.endpoint.asked) == 1
        assert session.num_calls == 1


@pytest.mark.parametrize("cap", ["max_tokens", "max_completion_tokens"])
async def test_a_cap_above_what_is_left_is_lowered_to_it_and_one_below_is_kept(cap: str) -> None:
    async with lab() as made:
        session = made.open(budget=Budget(context_tokens=100))
        for asked in (1000, 50, 1000):
            await made.post(session, {**QUESTION, cap: asked})
        assert [asked.json[cap] for asked in made.endpoint.asked] == [100, 50, 88]


async def test_no_cap_is_added_where_there_is_none() -> None:
    async with lab() as made:
        await made.post(made.open(budget=Budget(context_tokens=100)))
        assert made.endpoint.asked[0].json == QUESTION


async def test_the_context_is_that_of_the_longest_call_and_embeddings_are_no_part_of_it() -> None:
    async def long(_: Asked, wire: Wire) -> None:
        await wire.whole(completion(usage={"prompt_tokens": 60, "completion_tokens": 10, "total_tokens": 70}))

    async def short(_: Asked, wire: Wire) -> None:
        await wire.whole(completion(usage={"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6}))

    async def embedded(_: Asked, wire: Wire) -> None:
        await wire.whole({"data": [], "usage": {"prompt_tokens": 5000, "total_tokens": 5000}})

    async with lab() as made:
        session = made.open(budget=Budget(context_tokens=100))
        made.endpoint.script(long, short, embedded, short)
        await made.post(session)
        await made.post(session)
        await made.ask("POST", f"{session.path}/embeddings", key=session.key, body=b'{"model": "some-model"}')
        await made.post(session, {**QUESTION, "max_tokens": 99})
        assert made.endpoint.asked[-1].json["max_tokens"] == 30


@pytest.mark.parametrize(
    ("budget", "code"),
    [(Budget(calls=2), "call_budget_exceeded"), (Budget(tokens=13), "token_budget_exceeded")],
)
async def test_calls_and_tokens_of_all_calls_are_bounded(budget: Budget, code: str) -> None:
    async with lab() as made:
        session = made.open(budget=budget)
        assert [(await made.post(session)).status for _ in range(2)] == [200, 200]
        refused = await made.post(session)
        assert (refused.status, refused.code, refused.headers["x-should-retry"]) == (400, code, "false")
        assert len(made.endpoint.asked) == 2


async def test_calls_at_once_do_not_get_past_the_number_of_calls() -> None:
    async with lab() as made:
        session = made.open(budget=Budget(calls=3))
        answers = await asyncio.gather(*(made.post(session) for _ in range(10)))
        assert sorted(answer.status for answer in answers) == [200] * 3 + [400] * 7
        assert len(made.endpoint.asked) == 3


async def test_lists_of_models_cost_nothing() -> None:
    async with lab() as made:
        session = made.open(budget=Budget(calls=1))
        for _ in range(3):
            assert (await made.ask("GET", f"{session.path}/models", key=session.key)).status == 200
        assert (await made.post(session)).status == 200
        assert (session.num_calls, session.usage.total_tokens) == (1, 12)


async def test_what_a_rollout_may_take_is_what_the_limits_say() -> None:
    async with lab(context_tokens=12, model_calls_per_rollout=5) as made:
        session = made.open()
        assert session.budget == Budget(context_tokens=12, calls=5, tokens=None)
        assert [(await made.post(session)).status for _ in range(2)] == [200, 400]
    assert Budget.of(Limits()) == Budget(calls=10_000)


async def test_usage_of_a_stream_is_asked_for_where_a_budget_needs_it_and_kept_from_the_client() -> None:
    async with lab() as made:
        session = made.open(budget=Budget(tokens=1000))
        answer = await made.post(session, {**QUESTION, "stream": True})
        assert made.endpoint.asked[0].json["stream_options"] == {"include_usage": True}
        assert all(event == "[DONE]" or event["choices"] for event in answer.events)
        assert session.usage.total_tokens == 12
        assert not session.usage.estimated


async def test_usage_of_a_stream_that_the_client_asked_for_arrives() -> None:
    async with lab() as made:
        session = made.open(budget=Budget(tokens=1000))
        body = {**QUESTION, "stream": True, "stream_options": {"include_usage": True}}
        answer = await made.post(session, body)
        assert answer.events[-2]["usage"]["total_tokens"] == 12


async def test_usage_of_a_stream_is_not_asked_for_without_a_need() -> None:
    async with lab() as made:
        session = made.open()
        await made.post(session, {**QUESTION, "stream": True})
        assert "stream_options" not in made.endpoint.asked[0].json
        assert session.usage.estimated


@pytest.mark.parametrize("told", [None, {}, {"total_tokens": "many"}])
async def test_a_server_that_says_no_usage_is_held_to_an_estimate(told: Any) -> None:
    async def silent(asked: Asked, wire: Wire) -> None:
        if asked.json.get("stream"):
            await wire.begin()
            await wire.event({**chunk("x" * 400), "usage": told})
            await wire.event("[DONE]")
            await wire.end()
        else:
            await wire.whole({**completion("x" * 400), "usage": told})

    async with lab() as made:
        made.endpoint.doing = silent
        session = made.open(budget=Budget(context_tokens=100))
        for streamed in (False, True):
            assert (await made.post(session, {**QUESTION, "stream": streamed})).status == (400 if streamed else 200)
        assert session.usage.estimated
        streaming = made.open("other", budget=Budget(context_tokens=100))
        assert (await made.post(streaming, {**QUESTION, "stream": True})).status == 200
        assert (await made.post(streaming)).code == "context_budget_exceeded"


async def test_a_stream_that_breaks_off_is_paid_for_as_far_as_it_came() -> None:
    async def break_off(_: Asked, wire: Wire) -> None:
        await wire.begin()
        await wire.event(chunk("x" * 400))
        wire.writer.transport.abort()

    async with lab() as made:
        made.endpoint.doing = break_off
        session = made.open(budget=Budget(tokens=100))
        await made.post(session, {**QUESTION, "stream": True})
        assert (await made.post(session)).code == "token_budget_exceeded"


async def test_a_client_that_goes_early_pays_for_what_it_asked() -> None:
    async def begin(_: Asked, wire: Wire) -> None:
        await wire.begin()
        await wire.event(chunk("x" * 400))
        await wire.until_gone()

    async with lab() as made:
        made.endpoint.doing = begin
        session = made.open(budget=Budget(tokens=100))
        async with made.asking(session, {**QUESTION, "stream": True}) as client:
            await client.until(b"xxx")
        await made.endpoint.until(lambda: made.endpoint.open == 0)
        assert (await made.post(session)).code == "token_budget_exceeded"


async def test_an_answer_that_is_an_error_costs_a_call_and_no_tokens() -> None:
    async def refuse(_: Asked, wire: Wire) -> None:
        await wire.whole({"error": {"message": "no", "code": "x"}}, 400)

    async with lab() as made:
        made.endpoint.doing = refuse
        session = made.open(budget=Budget(context_tokens=50))
        assert (await made.post(session)).code == "x"
        assert (session.num_calls, session.usage.total_tokens) == (1, 0)
