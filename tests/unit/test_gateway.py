"""A gateway before a model: what goes through it as it is, with the real credential in place of the session's key."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.unit.gateway_lab import MODEL, QUESTION, SECRET, answered, lab, socket_pair


async def test_a_chat_completion_goes_through_with_the_real_credential() -> None:
    async with lab() as made:
        session = made.open()
        answer = await made.post(session)
        assert answer.status == 200
        assert answer.json["choices"][0]["message"]["content"] == "42"
        [asked] = made.endpoint.asked
        assert (asked.method, asked.target, asked.json) == ("POST", "/v1/chat/completions", QUESTION)
        assert asked.headers["authorization"] == f"Bearer {SECRET}"
        assert session.key not in str(asked)


async def test_a_single_accepted_socket_is_served_as_well() -> None:
    async with lab() as made:
        session = made.open()
        here, there = socket_pair()
        serving = asyncio.ensure_future(made.gateway.handler(None)(there))
        reader, writer = await asyncio.open_connection(sock=here)
        body = json.dumps(QUESTION).encode()
        head = f"POST {session.path}/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"
        writer.write(
            f"{head}authorization: Bearer {session.key}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body
        )
        answer = answered(await reader.read())
        writer.close()
        await serving
        there.close()
        assert answer.status == 200
        assert answer.json["model"] == MODEL


@pytest.mark.parametrize("route", ["embeddings", "models"])
async def test_embeddings_and_models_go_through(route: str) -> None:
    async with lab() as made:
        session = made.open()
        method, body = ("GET", b"") if route == "models" else ("POST", b'{"model": "some-model", "input": "a"}')
        answer = await made.ask(method, f"{session.path}/{route}", key=session.key, body=body)
        assert (answer.status, answer.json["object"]) == (200, "list")
        assert made.endpoint.asked[0].target == f"/v1/{route}"


async def test_a_stream_goes_through_event_by_event() -> None:
    async with lab() as made:
        session = made.open()
        answer = await made.post(session, {**QUESTION, "stream": True})
        assert [event["choices"][0]["delta"].get("content") for event in answer.events[:-1]] == ["4", "2", None]
        assert answer.events[-1] == "[DONE]"
