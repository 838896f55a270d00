"""A client whose body is no request: it is told so, and nothing is sent on."""

from __future__ import annotations

import json

import pytest

from tests.unit.gateway_lab import MODEL, QUESTION, lab


@pytest.mark.parametrize(
    "body", [b"", b"{", b"null", b"[]", b"42", b"\xff", b"[" * 100_000, b'{"a":' * 100_000, b"{}{}"]
)
@pytest.mark.parametrize("route", ["chat/completions", "embeddings"])
async def test_a_body_that_is_no_object_is_refused(body: bytes, route: str) -> None:
    async with lab() as made:
        session = made.open()
        answer = await made.ask("POST", f"{session.path}/{route}", key=session.key, body=body)
        assert (answer.status, answer.code) == (400, "invalid_request")
        assert len(answer.body) < 1_000
        assert made.endpoint.asked == []


async def test_what_is_sent_on_is_what_was_judged() -> None:
    """Of a member that stands there twice some read the first and some the last."""
    async with lab() as made:
        session = made.open(model=MODEL)
        twice = json.dumps(QUESTION)[:-1] + f', "model": "dearer", "model": "{MODEL}"}}'
        assert (await made.post(session, twice.encode())).status == 200
        assert made.endpoint.asked[0].body.count(b'"model"') == 1
        assert made.endpoint.asked[0].json == QUESTION


@pytest.mark.parametrize("more", [b'"x": NaN', b'"x": "\\ud800"', b'"x": 123456789012345678901234567890'])
async def test_what_some_clients_write_and_few_servers_read_goes_on_as_it_was_meant(more: bytes) -> None:
    async with lab() as made:
        body = json.dumps(QUESTION).encode()[:-1] + b", " + more + b"}"
        assert (await made.post(made.open(), body)).status == 200
        assert repr(made.endpoint.asked[0].json) == repr(json.loads(body))
