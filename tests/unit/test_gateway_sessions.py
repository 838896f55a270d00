"""Sessions: what a key is good for, how long, and what is known of it when it is over."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from runner.gateway.session import Sessions
from runner.limits import MAX_SESSION_ID_CHARS
from tests.unit.gateway_lab import MODEL, QUESTION, Asked, Wire, chunk, completion, lab


async def test_collecting_a_session_ends_it_and_says_what_became_of_it() -> None:
    async with lab() as made:
        session = made.open()
        await made.post(session)
        await made.post(session)
        collected = await session.collect()
        assert collected.num_calls == 2
        assert collected.usage.total_tokens == 24
        assert [trace.call.number for trace in collected.traces] == [0, 1]
        assert await session.collect() == collected
        late = await made.post(session)
        assert (late.status, late.code) == (401, "session_over")


async def test_a_session_is_collected_over_http() -> None:
    async with lab() as made:
        session = made.open()
        await made.post(session)
        answer = await made.ask("POST", f"{session.path}/collect", key=session.key)
        assert (answer.status, answer.json["num_calls"]) == (200, 1)
        assert isinstance(answer.json["contract_errors"], list)
        assert isinstance(answer.json["contract_warnings"], list)
        assert (await made.ask("POST", f"{session.path}/collect", key=session.key)).code == "session_over"
        assert (await session.collect()).num_calls == 1


async def test_a_session_is_discarded_over_http() -> None:
    async with lab() as made:
        session = made.open()
        answer = await made.ask("DELETE", session.path, key=session.key)
        assert (answer.status, answer.body) == (204, b"")
        assert (await made.post(session)).code == "session_over"


async def test_findings_about_the_requests_are_in_what_is_collected() -> None:
    async with lab() as made:
        session = made.open()
        await made.post(session, {**QUESTION, "temperature": 0.5, "max_tokens": 5})
        collected = (await made.ask("POST", f"{session.path}/collect", key=session.key)).json
        assert [found["field"] for found in collected["contract_errors"]] == ["temperature"]
        assert [found["field"] for found in collected["contract_warnings"]] == ["max_tokens"]


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_conversation_that_goes_on_at_once_is_no_overlap(streamed: bool) -> None:
    async with lab() as made:
        session = made.open()
        messages = [*QUESTION["messages"]]
        for _ in range(3):
            await made.post(session, {**QUESTION, "messages": messages, "stream": streamed})
            messages += [{"role": "assistant", "content": "42"}, {"role": "user", "content": "Sure?"}]
        assert (await session.collect()).contract_errors == ()


async def test_two_answers_at_once_are_an_overlap() -> None:
    async with lab() as made:
        together = asyncio.Barrier(2)

        async def both(_: Asked, wire: Wire) -> None:
            await together.wait()
            await wire.whole({"choices": []})

        made.endpoint.doing = both
        session = made.open()
        await asyncio.gather(made.post(session), made.post(session))
        assert [found["code"] for found in (await session.collect()).contract_errors] == ["overlapping_generations"]


async def test_a_session_of_a_binding_is_not_held_to_the_contract_of_training() -> None:
    async with lab() as made:
        session = made.open(binding="judge")
        await made.post(session, {**QUESTION, "temperature": 0})
        assert (await session.collect()).contract_errors == ()


async def test_a_session_ends_by_itself_when_its_time_is_over() -> None:
    async with lab() as made:
        session = made.open(ttl_s=0.05)
        async with asyncio.timeout(20):
            while (await made.post(session)).status != 401:
                pass
        assert (await made.post(session)).code == "session_over"


@pytest.mark.parametrize("streamed", [False, True])
async def test_ending_a_session_ends_its_calls_in_flight_and_tells_their_clients(streamed: bool) -> None:
    async with lab() as made:

        async def hang(_: Asked, wire: Wire) -> None:
            if streamed:
                await wire.begin()
                await wire.event(chunk("4"))
            await wire.until_gone()

        made.endpoint.doing = hang
        session = made.open()
        async with made.asking(session, {**QUESTION, "stream": streamed}) as client:
            if streamed:
                await client.until(b'"4"')
            else:
                await made.endpoint.until(lambda: len(made.endpoint.asked) == 1)
            collected = await session.collect()
            answer = await client.answer()
        if streamed:
            assert answer.events[-1]["error"]["code"] == "session_over"
        else:
            assert (answer.status, answer.code) == (401, "session_over")
        [trace] = collected.traces
        assert trace.error == "session_over"
        await made.endpoint.until(lambda: made.endpoint.open == 0)


async def test_an_id_that_is_taken_or_cannot_stand_in_a_url_is_an_error() -> None:
    async with lab() as made:
        made.open("a.b-c_1")
        for session_id in ("a.b-c_1", "", ".", "..", "a/b", "a b", "ä", "x" * (MAX_SESSION_ID_CHARS + 1), "a\n"):
            with pytest.raises(ValueError, match="session"):
                made.open(session_id)


async def test_an_id_is_free_again_when_its_session_is_over_and_the_old_key_stays_used_up() -> None:
    async with lab() as made:
        old = made.open("r")
        await old.close()
        new = made.open("r")
        assert new.key != old.key
        assert (await made.post(new)).status == 200
        assert (await made.post(old)).code == "session_over"


async def test_ids_for_rollouts_are_their_own_where_that_is_possible_and_all_different() -> None:
    async with lab() as made:
        ids = []
        for rollout_id in ["r-1", "r-1", "a/b", "a/b", "ü", "", "..", "x" * 100, "x" * 100, "x" * 101]:
            ids.append(made.gateway.free_id(rollout_id))
            made.open(ids[-1], rollout_id=rollout_id)
        assert ids[:2] == ["r-1", "r-1-2"]
        assert len({*ids}) == len(ids)
        assert all(len(session_id) <= MAX_SESSION_ID_CHARS for session_id in ids)


async def test_a_session_is_for_one_model() -> None:
    async with lab() as made:
        session = made.open(model=MODEL)
        assert (await made.post(session)).status == 200
        others: list[dict[str, Any]] = [
            {**QUESTION, "model": "dearer"},
            {"messages": []},
            {**QUESTION, "model": [MODEL]},
        ]
        for other in others:
            refused = await made.post(session, other)
            assert (refused.status, refused.json["error"]["param"]) == (400, "model")
        assert len(made.endpoint.asked) == 1


def test_the_keys_of_sessions_that_are_over_are_not_kept_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runner.gateway.session.ENDED_SESSIONS", 3)
    sessions = Sessions()
    sessions._ended.update({bytes([number]): None for number in range(3)})

    class Over:
        id, key = "r", "key"

    sessions.remove(Over())  # type: ignore[arg-type]  # what is removed needs no more
    assert len(sessions._ended) == 3
    assert b"\0" not in sessions._ended


async def test_calls_in_flight_are_counted_until_they_are_answered() -> None:
    released = asyncio.Event()

    async def wait(asked: Asked, wire: Wire) -> None:
        await released.wait()
        await wire.whole(completion())

    async with lab() as made:
        assert made.gateway.calls_in_flight == 0
        made.endpoint.doing = wait
        session = made.open()
        async with made.asking(session) as one, made.asking(session) as another:
            await made.endpoint.until(lambda: len(made.endpoint.asked) == 2)
            assert made.gateway.calls_in_flight == 2
            released.set()
            assert (await one.answer()).status == (await another.answer()).status == 200
        await made.keep_busy()
        assert made.gateway.calls_in_flight == 0
