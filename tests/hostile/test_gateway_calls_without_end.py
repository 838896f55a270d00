"""A worker that goes on asking beyond its budget is refused each time, and nothing is kept of that without bound."""

from __future__ import annotations

import json

from tests.unit.gateway_lab import QUESTION, Lab, answered, lab

CALLS = 300


async def flood(made: Lab, request: bytes, count: int) -> None:
    """Make the same request many times over one connection."""
    async with made.client() as raw:
        for _ in range(count):
            await raw.send(request)
            head = await raw.reader.readuntil(b"\r\n\r\n")
            await raw.reader.readexactly(int(answered(head).headers["content-length"]))


async def test_calls_beyond_the_budget_are_counted_and_not_kept() -> None:
    async with lab(model_calls_per_rollout=2, rollout_trace_bytes=100_000) as made:
        session = made.open()
        body = json.dumps(QUESTION).encode()
        head = f"POST {session.path}/chat/completions HTTP/1.1\r\nhost: g\r\nauthorization: Bearer {session.key}\r\n"
        await flood(made, f"{head}content-length: {len(body)}\r\n\r\n".encode() + body, CALLS)
        assert len(made.endpoint.asked) == 2
        collected = await session.collect()
        assert collected.num_calls == 2
        assert len(collected.traces) < CALLS / 2
        # the newest are there, whole
        assert collected.traces[-1].answer
        assert collected.traces[-1].call.number == CALLS - 1


async def test_lists_of_models_are_not_kept_without_end_either() -> None:
    async with lab(model_calls_per_rollout=2, rollout_trace_bytes=100_000) as made:
        session = made.open()
        head = f"GET {session.path}/models HTTP/1.1\r\nhost: g\r\nauthorization: Bearer {session.key}\r\n\r\n"
        await flood(made, head.encode(), CALLS)
        assert len((await session.collect()).traces) < CALLS / 2


async def test_what_is_kept_of_headers_is_bounded() -> None:
    async with lab(rollout_trace_bytes=100_000) as made:
        session = made.open()
        body = json.dumps(QUESTION).encode()
        filler = "".join(f"x-filler-{i}: {'x' * 1000}\r\n" for i in range(50))
        head = f"POST {session.path}/chat/completions HTTP/1.1\r\nhost: g\r\nauthorization: Bearer {session.key}\r\n"
        await flood(made, f"{head}{filler}content-length: {len(body)}\r\n\r\n".encode() + body, 50)
        traces = (await session.collect()).traces
        kept = sum(len(name) + len(value) for trace in traces for name, value in trace.call.headers.items())
        assert kept < 1_000_000
