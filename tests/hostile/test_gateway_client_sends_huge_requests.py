"""A client whose head or body is too large, announced or not: it is told, and nothing of it is kept or sent on."""

from __future__ import annotations

import pytest

from runner.limits import GATEWAY_HEAD_BYTES
from tests.unit.gateway_lab import QUESTION, lab


@pytest.mark.parametrize("size", [GATEWAY_HEAD_BYTES, 10 * GATEWAY_HEAD_BYTES])
async def test_a_head_that_is_too_large_is_refused(size: int) -> None:
    async with lab() as made:
        session = made.open()
        answer = await made.post(session, x_filler="x" * size)
        assert answer.status in (400, 431)
        assert answer.code in ("invalid_request", "request_too_large")
        assert made.endpoint.asked == []


async def test_a_head_that_never_ends_is_refused_before_it_has() -> None:
    async with lab() as made, made.client() as client:
        await client.send(b"POST / HTTP/1.1\r\n")
        for number in range(100):
            await client.send(f"x-{number}: {'x' * 10_000}\r\n".encode())
        assert (await client.answer()).status == 400


async def test_a_head_within_the_limit_is_read() -> None:
    async with lab() as made:
        answer = await made.post(made.open(), x_filler="x" * (GATEWAY_HEAD_BYTES // 2))
        assert answer.status == 200


async def test_an_announced_body_that_is_too_large_is_refused_before_it_comes() -> None:
    async with lab(request_bytes=1000) as made:
        session = made.open()
        async with made.client() as client:
            head = (
                f"POST {session.path}/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {session.key}\r\n"
            )
            await client.send(f"{head}content-length: 1001\r\n\r\n".encode())
            await client.until(b"request_too_large")
            assert client.got.startswith(b"HTTP/1.1 413")
        assert made.endpoint.asked == []


async def test_a_body_in_pieces_that_is_too_large_is_refused_when_it_is() -> None:
    async with lab(request_bytes=100_000) as made:
        session = made.open()
        async with made.client() as client:
            head = (
                f"POST {session.path}/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {session.key}\r\n"
            )
            await client.send(f"{head}transfer-encoding: chunked\r\n\r\n".encode())
            for _ in range(11):
                await client.send(b"2710\r\n" + b" " * 10_000 + b"\r\n")
            await client.until(b"request_too_large")
        assert made.endpoint.asked == []


async def test_a_body_in_pieces_within_the_limit_is_sent_on_whole() -> None:
    async with lab() as made:
        session = made.open()
        async with made.client() as client:
            head = (
                f"POST {session.path}/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {session.key}\r\n"
            )
            await client.send(f"{head}connection: close\r\ntransfer-encoding: chunked\r\n\r\n".encode())
            for piece in (
                b'{"model": "some-model", ',
                b'"messages": [{"role": "user",',
                b' "content": "6 times 7?"}]}',
            ):
                await client.send(b"%x\r\n%s\r\n" % (len(piece), piece))
            await client.send(b"0\r\nx-trailer: 1\r\n\r\n")
            assert (await client.answer()).status == 200
        [asked] = made.endpoint.asked
        assert asked.json == QUESTION
        assert "transfer-encoding" not in asked.headers
        assert "x-trailer" not in asked.headers


@pytest.mark.parametrize(
    "length",
    [
        "content-length: 5\r\ncontent-length: 6",
        "content-length: -1",
        "content-length: 0x10",
        "content-length: 5\r\ntransfer-encoding: chunked",
        "transfer-encoding: gzip, chunked",
        "transfer-encoding: chunked\r\ntransfer-encoding: identity",
        "content-length: " + "9" * 5000,
    ],
)
async def test_a_body_whose_length_can_be_read_in_several_ways_is_never_sent_on(length: str) -> None:
    async with lab() as made:
        session = made.open()
        head = f"POST {session.path}/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {session.key}\r\n"
        answer = await made.exchange(f"{head}connection: close\r\n{length}\r\n\r\n0\r\n\r\n".encode())
        assert answer.status in (400, 413, 501)
        assert answer.json["error"]["type"] in ("invalid_request_error", "server_error")
        assert made.endpoint.asked == []


async def test_a_body_that_stops_being_one_ends_the_request_and_asks_nothing() -> None:
    async with lab() as made:
        session = made.open()
        async with made.client() as client:
            head = (
                f"POST {session.path}/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {session.key}\r\n"
            )
            await client.send(f"{head}transfer-encoding: chunked\r\n\r\n5\r\n{{    \r\nno chunk\r\n".encode())
            answer = await client.answer()
        assert (answer.status, answer.code) == (400, "invalid_request")
        assert client.got.count(b"HTTP/1.1") == 1
        assert made.endpoint.asked == []
