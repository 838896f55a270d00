"""JSON that takes thirty times its size when it is decoded does not get so far: not in requests, nor in answers."""

from __future__ import annotations

import tracemalloc

import pytest

from runner.limits import MIB
from tests.unit.gateway_lab import Asked, Wire, lab

SIZE = 4 * MIB


def full_of(piece: bytes) -> bytes:
    return piece * (SIZE // len(piece)) + piece.rstrip(b",")


@pytest.mark.parametrize("piece", [b"[],", b"{},", b'{"":0},', b"[[]],"])
async def test_a_request_of_very_many_values_is_refused_before_it_is_decoded(piece: bytes) -> None:
    async with lab() as made:
        session = made.open()
        body = b'{"model": "some-model", "messages": [' + full_of(piece) + b"]}"
        tracemalloc.start()
        try:
            answer = await made.post(session, body)
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert answer.status == 400
        assert answer.code == "invalid_request"
        assert made.endpoint.asked == []
        # nor does counting build what it counts; `runner.transcript.values` goes through it a little at a time
        assert most < 8 * SIZE


async def test_an_answer_of_very_many_values_is_one_that_cannot_be_read() -> None:
    async def grow(asked: Asked, wire: Wire) -> None:
        await wire.whole(b'{"choices": [' + full_of(b"[],") + b"]}")

    async with lab() as made:
        made.endpoint.doing = grow
        tracemalloc.start()
        try:
            answer = await made.post(made.open())
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert answer.status == 502
        assert answer.code == "upstream_invalid"
        assert most < 8 * SIZE


@pytest.mark.parametrize("piece", [b"[{,:", b'\\",,', b"\\\\,,", b'\\\\\\"'])
async def test_a_long_text_full_of_punctuation_is_no_such_thing(piece: bytes) -> None:
    async with lab() as made:
        # no values at all, whatever a quick look at it takes for some
        body = b'{"model": "some-model", "messages": [{"role": "user", "content": "' + piece * (SIZE // 4) + b'"}]}'
        answer = await made.post(made.open(), body)
        assert answer.status == 200
        assert len(made.endpoint.asked[0].body) >= SIZE // 2


async def test_many_texts_given_as_tokens_can_be_embedded() -> None:
    async with lab() as made:
        session = made.open()
        tokens = b"[" + b",".join([b"12345"] * 500) + b"]"
        body = b'{"model": "some-model", "input": [' + b",".join([tokens] * 1_000) + b"]}"
        answer = await made.ask("POST", f"{session.path}/embeddings", key=session.key, body=body)
        assert answer.status == 200
