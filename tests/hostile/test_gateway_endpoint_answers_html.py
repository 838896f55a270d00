"""An endpoint that is some other server, or behind one: pages come where answers should."""

from __future__ import annotations

import pytest

from tests.unit.gateway_lab import QUESTION, SECRET, Asked, Wire, lab

PAGE = b"<html>\n<body>Sign in to the hotel</body></html>"


async def test_a_page_with_status_200_is_no_answer() -> None:
    async def page(_: Asked, wire: Wire) -> None:
        await wire.whole(PAGE, content_type="text/html")

    async with lab() as made:
        made.endpoint.doing = page
        session = made.open()
        for body in (QUESTION, {**QUESTION, "stream": True}):
            answer = await made.post(session, body)
            assert (answer.status, answer.code, answer.headers["x-should-retry"]) == (502, "upstream_invalid", "false")
            assert "Sign in to the hotel" in answer.json["error"]["message"]
        assert session.usage.total_tokens == 0


@pytest.mark.parametrize("status", [400, 403, 404, 500, 502, 503])
async def test_a_page_with_an_error_status_becomes_an_error_object_of_the_same_status(status: int) -> None:
    async def page(asked: Asked, wire: Wire) -> None:
        await wire.whole(PAGE + asked.headers["authorization"].encode(), status, content_type="text/html")

    async with lab() as made:
        made.endpoint.doing = page
        answer = await made.post(made.open())
        assert (answer.status, answer.code) == (status, "upstream_invalid")
        assert answer.headers["content-type"] == "application/json"
        assert "Sign in to the hotel" in answer.json["error"]["message"]
        assert SECRET not in answer.body.decode()
