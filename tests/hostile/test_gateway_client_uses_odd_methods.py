"""A client with methods that are not meant: it is told which is, and a HEAD gets no body."""

from __future__ import annotations

import json

import pytest

from tests.unit.gateway_lab import QUESTION, lab

BODY = json.dumps(QUESTION).encode()


@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "post", "X" * 500])
async def test_a_method_that_is_not_there_is_refused_with_the_one_that_is(method: str) -> None:
    async with lab() as made:
        session = made.open()
        answer = await made.ask(method, f"{session.path}/chat/completions", key=session.key, body=BODY)
        assert (answer.status, answer.code, answer.headers["allow"]) == (405, "method_not_allowed", "POST")
        assert len(answer.body) < 500
        assert made.endpoint.asked == []


@pytest.mark.parametrize("route", ["chat/completions", "models"])
async def test_a_head_request_gets_no_body_and_the_connection_goes_on(route: str) -> None:
    async with lab() as made:
        session = made.open()
        async with made.client() as client:
            head = f"HEAD {session.path}/{route} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {session.key}\r\n\r\n"
            await client.send(head.encode())
            await client.until(b"\r\n\r\n")
            assert client.got.startswith(b"HTTP/1.1 405")
            client.got = b""
            get = f"GET {session.path}/models HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"
            await client.send(f"{get}authorization: Bearer {session.key}\r\n\r\n".encode())
            assert (await client.answer()).status == 200
        assert len(made.endpoint.asked) == 1


@pytest.mark.parametrize("method", ["CONNECT elsewhere.example:443", "CONNECT /sessions/r/v1/chat/completions"])
async def test_the_gateway_is_no_proxy(method: str) -> None:
    async with lab() as made:
        session = made.open()
        lines = f"{method} HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: Bearer {session.key}\r\n\r\n"
        answer = await made.exchange(lines.encode())
        assert answer.status in (400, 404, 405)
        assert made.endpoint.asked == []


async def test_a_request_to_become_a_web_socket_is_a_request_like_any_other() -> None:
    async with lab() as made:
        session = made.open()
        get = f"GET {session.path}/models HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {session.key}\r\n"
        upgrade = "connection: upgrade, close\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n"
        answer = await made.exchange(f"{get}{upgrade}sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode())
        assert answer.status == 200
        assert "upgrade" not in made.endpoint.asked[0].headers
