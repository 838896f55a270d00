"""A client that says nothing, or a byte now and then: its connection is taken away, and nobody else waits."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.gateway_lab import lab


@pytest.mark.parametrize("said", [b"", b"POST /sessions/r/v1/chat/comp", b"GET / HTTP/1.1\r\nx: 1\r\n"])
async def test_a_client_that_does_not_finish_its_head_is_cut_off(said: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runner.gateway.server.GATEWAY_REQUEST_S", 0.2)
    async with lab() as made, made.client() as client:
        await client.send(said)
        assert (await client.answer()).status == 0
        assert (await made.post(made.open())).status == 200


async def test_a_byte_now_and_then_is_no_request_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runner.gateway.server.GATEWAY_REQUEST_S", 0.3)
    async with lab() as made, made.client() as client:
        await client.send(b"GET / HTTP/1.1\r\nx: ")
        with pytest.raises(ConnectionError):
            for _ in range(1000):
                await client.send(b"x")
                await asyncio.sleep(0.01)


async def test_the_second_request_of_a_connection_is_held_to_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runner.gateway.server.GATEWAY_REQUEST_S", 0.3)
    async with lab() as made:
        session = made.open()
        async with made.client() as client:
            get = f"GET {session.path}/models HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {session.key}\r\n\r\n"
            await client.send(get.encode())
            await client.until(b'"object"')
            await client.send(b"GET / HT")
            await client.answer()
        assert client.got.count(b"HTTP/1.1") == 1


async def test_a_body_that_does_not_come_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runner.gateway.client.GATEWAY_REQUEST_S", 0.1)
    async with lab() as made:
        session = made.open()
        async with made.client() as client:
            head = (
                f"POST {session.path}/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {session.key}\r\n"
            )
            await client.send(f"{head}content-length: 100\r\n\r\n{{".encode())
            await client.until(b'"invalid_request"')
            assert client.got.startswith(b"HTTP/1.1 408")
        assert made.endpoint.asked == []


async def test_a_client_that_waits_to_be_asked_for_its_body_is() -> None:
    async with lab() as made:
        session = made.open()
        async with made.client() as client:
            body = b'{"model": "some-model", "messages": []}'
            head = (
                f"POST {session.path}/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {session.key}\r\n"
            )
            more = f"connection: close\r\nexpect: 100-continue\r\ncontent-length: {len(body)}\r\n\r\n"
            await client.send(f"{head}{more}".encode())
            await client.until(b"100 Continue\r\n\r\n")
            client.got = b""
            await client.send(body)
            assert (await client.answer()).status == 200


async def test_connections_beyond_the_limit_are_closed_and_those_before_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runner.gateway.server.GATEWAY_CONNECTIONS", 3)
    async with lab() as made:
        session = made.open()
        async with made.client() as first, made.client(), made.client():
            async with made.client() as one_too_many:
                assert (await one_too_many.answer()).status == 0
            get = f"GET {session.path}/models HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"
            await first.send(f"{get}authorization: Bearer {session.key}\r\n\r\n".encode())
            assert (await first.answer()).status == 200
        assert (await made.post(session)).status == 200
