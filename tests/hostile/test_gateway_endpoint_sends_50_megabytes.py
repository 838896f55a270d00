"""An endpoint that sends more than any answer has: it is not held in memory, announced or not, compressed or not."""

from __future__ import annotations

import gzip

import pytest

from tests.unit.gateway_lab import Asked, Wire, completion, lab

MIB = 1024 * 1024


@pytest.mark.parametrize("announced", [False, True])
async def test_an_answer_of_50_megabytes_is_given_up_at_the_limit(announced: bool) -> None:
    sent = 0

    async def flood(_: Asked, wire: Wire) -> None:
        nonlocal sent
        if announced:
            head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {50 * MIB}\r\n\r\n"
            await wire.send(head.encode())
        else:
            await wire.begin(content_type="application/json")
        for _number in range(50):
            await (wire.send if announced else wire.chunk)(b" " * MIB)
            sent += MIB

    async with lab(answer_bytes=4 * MIB) as made:
        made.endpoint.doing = flood
        answer = await made.post(made.open())
        assert (answer.status, answer.code, answer.headers["x-should-retry"]) == (502, "answer_too_large", "false")
        assert "4194304 bytes" in answer.json["error"]["message"]
        await made.endpoint.until(lambda: made.endpoint.open == 0)
        assert sent < 20 * MIB


async def test_a_few_compressed_bytes_that_stand_for_50_megabytes_are_given_up_as_well() -> None:
    async def bomb(_: Asked, wire: Wire) -> None:
        await wire.whole(gzip.compress(bytes(50 * MIB)), headers=[("content-encoding", "gzip")])

    async with lab(answer_bytes=4 * MIB) as made:
        made.endpoint.doing = bomb
        assert (await made.post(made.open())).code == "answer_too_large"


async def test_an_answer_that_is_compressed_though_nobody_asked_arrives_as_it_was() -> None:
    async def compressed(asked: Asked, wire: Wire) -> None:
        assert asked.headers["accept-encoding"] == "identity"
        await wire.whole(gzip.compress(b'{"choices": []}'), headers=[("content-encoding", "gzip")])

    async with lab() as made:
        made.endpoint.doing = compressed
        answer = await made.post(made.open(), accept_encoding="gzip, br")
        assert answer.body == b'{"choices": []}'
        assert "content-encoding" not in answer.headers


@pytest.mark.parametrize(
    ("encoding", "body"),
    [("gzip", b"<html>"), ("gzip", gzip.compress(b"{}")[:-3]), ("br", b"x"), ("gzip, gzip", b"x"), ("zstd", b"x")],
    ids=["no gzip", "half a gzip", "br", "twice", "zstd"],
)
async def test_a_body_that_cannot_be_decompressed_is_an_error(encoding: str, body: bytes) -> None:
    async def broken(_: Asked, wire: Wire) -> None:
        await wire.whole(body, headers=[("content-encoding", encoding)])

    async with lab() as made:
        made.endpoint.doing = broken
        assert (await made.post(made.open())).code == "upstream_invalid"


async def test_an_answer_at_the_limit_arrives() -> None:
    async def large(_: Asked, wire: Wire) -> None:
        await wire.whole(completion("x" * MIB))

    async with lab(answer_bytes=2 * MIB) as made:
        made.endpoint.doing = large
        answer = await made.post(made.open())
        assert answer.json["choices"][0]["message"]["content"] == "x" * MIB
