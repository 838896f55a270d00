"""A client that sends its next requests before it has the answer: each is answered, in order, and none is mixed up."""

from __future__ import annotations

import json
import re

from tests.unit.gateway_lab import QUESTION, Asked, Wire, completion, lab


async def echo(asked: Asked, wire: Wire) -> None:
    await wire.whole(completion(f"<{asked.json['messages'][0]['content']}>"))


def request(path: str, key: str, text: str, *, last: bool = False) -> bytes:
    body = json.dumps({**QUESTION, "messages": [{"role": "user", "content": text}]}).encode()
    head = f"POST {path}/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n"
    end = "connection: close\r\n" if last else ""
    return f"{head}{end}content-length: {len(body)}\r\n\r\n".encode() + body


async def test_requests_that_come_at_once_are_answered_in_order() -> None:
    async with lab() as made:
        made.endpoint.doing = echo
        session = made.open()
        async with made.client() as client:
            texts = [f"number {number}" for number in range(20)]
            await client.send(b"".join(request(session.path, session.key, t, last=t == texts[-1]) for t in texts))
            await client.answer()
        places = [client.got.index(f"<{text}>".encode()) for text in texts]
        assert places == sorted(places)
        assert session.num_calls == 20


async def test_each_is_held_to_its_own_key() -> None:
    async with lab() as made:
        made.endpoint.doing = echo
        session, other = made.open(), made.open("other")
        async with made.client() as client:
            good, bad = (session.path, session.key), (session.path, other.key)
            await client.send(request(*good, "a") + request(*bad, "b") + request(*good, "c", last=True))
            await client.answer()
        assert re.findall(rb"HTTP/1.1 (\d+)", client.got) == [b"200", b"401", b"200"]
        assert [asked.json["messages"][0]["content"] for asked in made.endpoint.asked] == ["a", "c"]


async def test_what_follows_a_request_and_is_none_does_not_spoil_its_answer() -> None:
    async with lab() as made:
        made.endpoint.doing = echo
        session = made.open()
        async with made.client() as client:
            await client.send(request(session.path, session.key, "a") + b"\x16\x03\x01 no request\r\n\r\n")
            await client.answer()
        assert b"<a>" in client.got
        assert client.got.count(b"HTTP/1.1 200") == 1
