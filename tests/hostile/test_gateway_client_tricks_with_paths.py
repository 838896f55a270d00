"""A client that writes a path in other ways than the one that there is: it is not there, whatever it would mean."""

from __future__ import annotations

import json

import pytest

from tests.unit.gateway_lab import QUESTION, lab

BODY = json.dumps(QUESTION).encode()


@pytest.mark.parametrize(
    "target",
    [
        "/sessions/mine/v1/chat%2Fcompletions",
        "/sessions/mine/v1/%63hat/completions",
        "/sessions/%6dine/v1/chat/completions",
        "/sessions/mine/v1//chat/completions",
        "//sessions/mine/v1/chat/completions",
        "/sessions//mine/v1/chat/completions",
        "/sessions/mine/v1/chat/completions/",
        "/sessions/mine/v1/./chat/completions",
        "/sessions/mine/v1/../v1/chat/completions",
        "/sessions/other/../mine/v1/chat/completions",
        "/sessions/mine/v1/%2e%2e/v1/chat/completions",
        "/sessions/mine/v1/..;/v1/chat/completions",
        "/sessions/mine/v1/chat/completions;x",
        "/sessions/mine/v1/chat/completions?x=1",
        "/sessions/mine/v1/chat/completions#x",
        "/sessions/mine/v1/chat\\completions",
        "/sessions/mine/v1/CHAT/completions",
        "/SESSIONS/mine/v1/chat/completions",
        "/sessions/mine/v1/chat/completions%00",
        "/sessions/mine/v2/chat/completions",
        "/sessions/mine/v1/responses",
        "/sessions/mine/v1/files",
        "/sessions/mine/v1/models/x",
        "/sessions/mine/v1/",
        "/sessions/mine",
        "/v1/chat/completions",
        "/",
        "*",
        "http://elsewhere.example/sessions/mine/v1/chat/completions",
        "http://gateway/sessions/mine/v1/chat/completions",
        "/sessions/mine/v1/http://elsewhere.example/",
    ],
)
async def test_only_the_one_way_to_write_a_path_leads_anywhere(target: str) -> None:
    async with lab() as made:
        session = made.open("mine")
        made.open("other")
        answer = await made.ask("POST", target, key=session.key, body=BODY)
        assert answer.status in (400, 401, 404)
        assert answer.json["error"].keys() == {"message", "type", "param", "code"}
        assert made.endpoint.asked == []


@pytest.mark.parametrize("target", ["/sessions/mine/v1/chat/ü", "/sessions/mine/v1/a\tb", "/a b", ""])
async def test_what_is_no_target_is_no_request(target: str) -> None:
    async with lab() as made:
        session = made.open("mine")
        answer = await made.ask("POST", target.encode().decode("latin-1"), key=session.key, body=BODY)
        assert answer.status in (400, 404)
        assert answer.json["error"]["type"] == "invalid_request_error"
        assert made.endpoint.asked == []
