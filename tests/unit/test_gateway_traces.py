"""What is kept of each call, and how much of it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.gateway_lab import QUESTION, SECRET, Asked, Wire, chunk, completion, lab


async def test_a_call_leaves_what_was_asked_and_answered_and_how_long_it_took() -> None:
    async with lab() as made:
        session = made.open(rollout_id="rollout 1")
        answer = await made.post(session, x_benchmax_sample="3")
        [trace] = made.traces
        assert (trace.call.rollout_id, trace.call.binding, trace.call.number) == ("rollout 1", None, 0)
        assert (trace.call.method, trace.call.route, trace.call.url) == ("POST", "chat/completions", None)
        assert trace.call.document == QUESTION
        assert trace.call.headers["x-benchmax-sample"] == "3"
        assert "authorization" not in trace.call.headers
        assert (trace.status, trace.answer, trace.answer_type) == (200, answer.body, "application/json")
        assert trace.usage is not None
        assert (trace.usage.total_tokens, trace.error, trace.streamed, trace.omitted_bytes) == (12, None, False, 0)
        assert trace.first_byte_s is not None
        assert 0 < trace.first_byte_s <= trace.seconds
        [kept] = (await session.collect()).traces
        assert kept.call.document is None
        assert (kept.call.body, kept.answer) == (trace.call.body, trace.answer)


async def test_a_stream_leaves_the_events_that_the_client_got() -> None:
    async with lab() as made:
        answer = await made.post(made.open(), {**QUESTION, "stream": True})
        [trace] = made.traces
        assert trace.streamed
        assert trace.answer_type == "text/event-stream"
        assert trace.answer == answer.body


async def test_calls_that_are_refused_leave_a_trace_with_a_number_too() -> None:
    async with lab(model_calls_per_rollout=1) as made:
        session = made.open()
        for _ in range(2):
            await made.post(session)
        assert [(trace.call.number, trace.status, trace.error) for trace in made.traces] == [
            (0, 200, None),
            (1, 400, "call_budget_exceeded"),
        ]


async def test_an_error_of_the_server_leaves_its_code() -> None:
    async def refuse(_: Asked, wire: Wire) -> None:
        await wire.whole({"error": {"message": "no", "type": "t", "param": None, "code": "model_overloaded"}}, 503)

    async with lab() as made:
        made.endpoint.doing = refuse
        assert (await made.post(made.open())).status == 503
        assert (made.traces[0].status, made.traces[0].error) == (503, "model_overloaded")


@pytest.mark.parametrize("streamed", [False, True])
async def test_of_a_long_call_the_ends_are_left_out_and_counted(streamed: bool) -> None:
    async def long(asked: Asked, wire: Wire) -> None:
        if asked.json["stream"]:
            await wire.begin()
            for _ in range(10):
                await wire.event(chunk("y" * 1000))
            await wire.event("[DONE]")
            await wire.end()
        else:
            await wire.whole(completion("y" * 10_000))

    body: dict[str, Any] = {**QUESTION, "stream": streamed, "user": "x" * 1000}
    async with lab(trace_bytes=4000) as made:
        made.endpoint.doing = long
        session = made.open()
        answer = await made.post(session, body)
        [trace] = made.traces
        assert len(trace.call.body) + len(trace.answer) == 4000
        assert answer.body.startswith(trace.answer)
        assert trace.omitted_bytes == len(answer.body) - len(trace.answer)
        await made.post(session, {**body, "user": "x" * 10_000})
        _, second = made.traces
        assert (len(second.call.body), second.answer) == (4000, b"")


async def test_of_a_long_conversation_the_newest_calls_are_kept_whole() -> None:
    async with lab(rollout_trace_bytes=12_000) as made:
        session = made.open()
        for number in range(6):
            await made.post(session, {**QUESTION, "user": f"{number}" * 2000})
        traces = (await session.collect()).traces
        assert [trace.call.number for trace in traces] == [0, 1, 2, 3, 4, 5]
        kept = [bool(trace.call.body) for trace in traces]
        assert kept == sorted(kept)
        assert traces[-1].answer
        assert traces[0].omitted_bytes > 2000
        assert sum(len(trace.call.body) + len(trace.answer) for trace in traces) <= 12_000
        # who is told of each as it ends has it whole
        assert all(trace.call.body for trace in made.traces)


async def test_of_many_rollouts_at_once_each_keeps_its_newest_call() -> None:
    async with lab(in_flight_bytes=20_000) as made:
        sessions = [made.open(f"r{number}") for number in range(4)]
        for number in range(4):
            for session in sessions:
                await made.post(session, {**QUESTION, "user": f"{number}" * 2000})
        kept = [(await session.collect()).traces for session in sessions]
        assert all(traces[-1].call.body and traces[-1].answer for traces in kept)
        assert sum(bool(trace.call.body) for traces in kept for trace in traces) < 16
        # what was collected is no more of the gateway's
        session = made.open("after")
        for _ in range(4):
            await made.post(session, {**QUESTION, "user": "x" * 2000})
        assert all(trace.call.body for trace in (await session.collect()).traces)


async def test_no_trace_shows_the_credential() -> None:
    async def echo(asked: Asked, wire: Wire) -> None:
        await wire.whole(completion(f"you sent {asked.headers['authorization']}"))

    async with lab() as made:
        made.endpoint.doing = echo
        answer = await made.post(made.open())
        assert "[redacted]" in answer.body.decode()
        assert SECRET not in repr(made.traces)
