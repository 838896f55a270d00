"""An endpoint that sends the caller on to another server: the credential and the question do not go there."""

from __future__ import annotations

import pytest

from tests.unit.gateway_lab import Asked, Wire, endpoint, lab


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_no_redirect_leads_to_another_server(status: int) -> None:
    async with endpoint() as other, lab() as made:

        async def elsewhere(_: Asked, wire: Wire) -> None:
            await wire.whole(b"", status, headers=[("location", f"{other.url}/chat/completions")])

        made.endpoint.doing = elsewhere
        answer = await made.post(made.open())
        assert (answer.status, answer.code, answer.headers["x-should-retry"]) == (502, "upstream_redirect", "false")
        assert other.url.removesuffix("/v1") in answer.json["error"]["message"]
        assert other.asked == []
        assert "location" not in answer.headers


@pytest.mark.parametrize(
    "location",
    [
        "",
        "//127.0.0.1:1/v1",
        "http://user:password@127.0.0.1/v1",
        "ftp://127.0.0.1/v1",
        "http://[::1",
        "/v1/%2e%2e/admin",
        "/v1\\admin",
        "javascript:alert(1)",
    ],
)
async def test_a_redirect_that_can_be_read_in_several_ways_is_not_followed(location: str) -> None:
    async with lab() as made:

        async def elsewhere(_: Asked, wire: Wire) -> None:
            await wire.whole(b"", 307, headers=[("location", location)])

        made.endpoint.doing = elsewhere
        answer = await made.post(made.open())
        assert answer.code == "upstream_redirect"
        assert "password" not in answer.json["error"]["message"]
        assert len(made.endpoint.asked) == 1


async def test_a_redirect_that_drops_the_question_is_not_followed() -> None:
    async with lab() as made:

        async def see_other(_: Asked, wire: Wire) -> None:
            await wire.whole(b"", 303, headers=[("location", "/v1/other")])

        made.endpoint.doing = see_other
        assert (await made.post(made.open())).code == "upstream_redirect"
        assert len(made.endpoint.asked) == 1


async def test_redirects_in_a_circle_end() -> None:
    async with lab() as made:

        async def again(asked: Asked, wire: Wire) -> None:
            await wire.whole(b"", 307, headers=[("location", asked.target)])

        made.endpoint.doing = again
        answer = await made.post(made.open())
        assert answer.code == "upstream_redirect"
        assert "more than 3 times" in answer.json["error"]["message"]
        assert len(made.endpoint.asked) == 4
