"""Sessions that clients open over HTTP, where somebody admits them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from runner.gateway.app import Opening
from runner.gateway.exchange import Upstream
from tests.unit.gateway_lab import MODEL, Answered, Lab, lab

ASKED = {"model": MODEL, "max_context_tokens": 12, "ttl_seconds": 600}


class Admitting:
    """Admits one bearer."""

    def __init__(self) -> None:
        self.made: Lab | None = None
        self.openings: list[Opening] = []

    async def __call__(self, opening: Opening) -> Upstream | None:
        self.openings.append(opening)
        assert self.made is not None
        if opening.bearer != "trainer":
            return None
        return self.made.gateway.upstream(self.made.endpoint.url, self.made.keys)


async def put(made: Lab, session_id: str = "validate-1", body: Any = None, key: str | None = "trainer") -> Answered:
    data = body if isinstance(body, bytes) else json.dumps(ASKED if body is None else body).encode()
    return await made.ask("PUT", f"/v1/sessions/{session_id}", key=key, body=data)


async def test_a_session_is_opened_used_and_collected_as_its_answer_says() -> None:
    admit = Admitting()
    async with lab(admit=admit) as made:
        admit.made = made
        opened = (await put(made)).json
        assert opened["base_url"] == "/sessions/validate-1/v1"
        [opening] = admit.openings
        assert (opening.model, opening.max_context_tokens, opening.ttl_seconds) == (MODEL, 12, 600)
        body = json.dumps({"model": MODEL, "messages": []}).encode()
        chat = f"{opened['base_url']}/chat/completions"
        assert (await made.ask("POST", chat, key=opened["session_key"], body=body)).status == 200
        full = await made.ask("POST", chat, key=opened["session_key"], body=body)
        assert (full.status, full.code) == (400, "context_budget_exceeded")
        collected = await made.ask("POST", f"{opened['base_url']}/collect", key=opened["session_key"])
        assert collected.json["num_calls"] == 1


@pytest.mark.parametrize("key", ["somebody", None])
async def test_who_is_not_admitted_opens_nothing(key: str | None) -> None:
    admit = Admitting()
    async with lab(admit=admit) as made:
        admit.made = made
        answer = await put(made, key=key)
        assert (answer.status, answer.code) == (401, "invalid_session_key")


async def test_an_id_that_is_taken_is_a_conflict_and_the_session_that_has_it_goes_on() -> None:
    admit = Admitting()
    async with lab(admit=admit) as made:
        admit.made = made
        first = (await put(made)).json
        assert (await put(made)).status == 409
        models = await made.ask("GET", f"{first['base_url']}/models", key=first["session_key"])
        assert models.status == 200


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"", None),
        (b"[]", None),
        (b"{", None),
        ({}, "model"),
        ({**ASKED, "model": ""}, "model"),
        ({**ASKED, "max_context_tokens": 0}, "max_context_tokens"),
        ({**ASKED, "max_context_tokens": True}, "max_context_tokens"),
        ({**ASKED, "ttl_seconds": -1}, "ttl_seconds"),
        ({**ASKED, "ttl_seconds": 1e9}, "ttl_seconds"),
        ({**ASKED, "ttl_seconds": "600"}, "ttl_seconds"),
    ],
)
async def test_what_cannot_be_meant_is_refused_by_name(body: Any, param: str | None) -> None:
    admit = Admitting()
    async with lab(admit=admit) as made:
        admit.made = made
        answer = await put(made, body=body)
        assert (answer.status, answer.json["error"]["param"]) == (400, param)
        assert admit.openings == []


async def test_an_id_that_cannot_stand_in_a_url_is_refused() -> None:
    admit = Admitting()
    async with lab(admit=admit) as made:
        admit.made = made
        assert (await put(made, "a%2Fb")).status == 400
        assert (await put(made, "..")).status == 400
        assert (await put(made, "x" * 101)).status == 400
        assert (await put(made, "a/b")).status == 404


async def test_where_nobody_admits_there_is_no_such_address() -> None:
    async with lab() as made:
        assert (await put(made)).code == "not_found"
