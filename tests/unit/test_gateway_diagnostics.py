"""Diagnostics where they are made: at a gateway, with answers that stream, fail, and come late."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from runner.gateway.session import Session
from tests.unit.gateway_lab import QUESTION, Asked, Wire, answer_plainly, chunk, lab

ANSWER = {"role": "assistant", "content": "42"}
MORE = {"role": "user", "content": "And twice that?"}
GOING_ON: dict[str, Any] = {**QUESTION, "messages": [*QUESTION["messages"], ANSWER, MORE]}


async def found(session: Session) -> list[tuple[str, str]]:
    collected = await session.collect()
    return [(finding.code, finding.field) for finding in collected.findings]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_conversation_that_goes_on_from_its_answers_is_clean(stream: bool) -> None:
    async with lab() as made:
        session = made.open()
        for body in (QUESTION, GOING_ON):
            assert (await made.post(session, {**body, "stream": stream})).status == 200
        assert await found(session) == []


@pytest.mark.parametrize("stream", [False, True])
async def test_another_answer_than_the_model_gave_is_found(stream: bool) -> None:
    changed = {**GOING_ON, "messages": [*QUESTION["messages"], {**ANSWER, "content": "43"}, MORE]}
    async with lab() as made:
        session = made.open()
        for body in (QUESTION, changed):
            await made.post(session, {**body, "stream": stream})
        assert await found(session) == [("rewritten_history", "messages[1].content")]


async def test_a_client_that_goes_on_as_soon_as_an_answer_has_its_reason_to_end_overlaps_with_nothing() -> None:
    released = asyncio.Event()

    async def finish_late(asked: Asked, wire: Wire) -> None:
        await wire.begin()
        await wire.event(chunk("42"))
        await wire.event(chunk(finish="stop"))
        await released.wait()
        await wire.event("[DONE]")
        await wire.end()

    async with lab() as made:
        session = made.open()
        made.endpoint.script(finish_late, answer_plainly)
        async with made.asking(session, {**QUESTION, "stream": True}) as client:
            await client.until(b'"finish_reason": "stop"')
            # the assembler says `finished` then, and the contract is told before the client is
            assert (await made.post(session, GOING_ON)).status == 200
            released.set()
            await client.answer()
        assert await found(session) == []


async def test_requests_at_the_same_time_are_found() -> None:
    async def wait_for_two(asked: Asked, wire: Wire) -> None:
        await made.endpoint.until(lambda: len(made.endpoint.asked) == 2)
        await answer_plainly(asked, wire)

    async with lab() as made:
        made.endpoint.doing = wait_for_two
        session = made.open()
        await asyncio.gather(made.post(session), made.post(session))
        assert await found(session) == [("overlapping_generations", "")]


async def break_off(asked: Asked, wire: Wire) -> None:
    await wire.begin()
    await wire.event(chunk("4"))
    wire.writer.transport.abort()


async def fail(asked: Asked, wire: Wire) -> None:
    await wire.whole({"error": {"message": "busy", "code": "busy"}}, 503)


@pytest.mark.parametrize("how", [break_off, fail])
async def test_an_answer_that_fails_may_be_asked_for_again(how: Any) -> None:
    async with lab() as made:
        session = made.open()
        made.endpoint.script(how, answer_plainly, answer_plainly)
        for body in (QUESTION, QUESTION, GOING_ON):
            # what came of one that broke off is no answer, which the contract would hold the next request against
            await made.post(session, {**body, "stream": True})
        assert await found(session) == []


async def test_what_is_asked_under_a_binding_is_the_environment_s_own_affair() -> None:
    async with lab() as made:
        session = made.open("r.judge", rollout_id="r", binding="judge")
        for _ in range(2):
            assert (await made.post(session, {**QUESTION, "temperature": 0, "n": 2})).status == 200
        collected = await session.collect()
        assert (collected.findings, collected.contract_errors, collected.contract_warnings) == ((), (), ())


async def test_who_collects_over_http_is_told_errors_and_warnings_apart() -> None:
    async with lab() as made:
        session = made.open()
        await made.post(session, {**QUESTION, "temperature": 0.5, "max_tokens": 9})
        answer = await made.ask("POST", f"{session.path}/collect", key=session.key)
        assert answer.status == 200
        told = answer.json
        assert told["num_calls"] == 1
        [error] = told["contract_errors"]
        assert (error["code"], error["field"]) == ("trainer_owned_model_control", "temperature")
        assert error["message"].startswith("temperature is 0.5: ")
        [warning] = told["contract_warnings"]
        assert (warning["code"], warning["field"]) == ("harness_output_cap", "max_tokens")
