"""A worker's headers do not choose who pays under the caller's credential, nor where a server sends it on to."""

from __future__ import annotations

import pytest

from tests.unit.gateway_lab import SECRET, lab


@pytest.mark.parametrize(
    "name",
    [
        "openai-organization",
        "openai-project",
        "x-portkey-custom-host",
        "x-portkey-config",
        "helicone-target-url",
        "x-litellm-api-base",
        "cf-aig-custom-host",
        "x-goog-user-project",
        "x-forwarded-host",
        "x-rewrite-url",
        "x-original-url",
        "forwarded",
        "cookie",
        "api-key",
        "x-api-key",
        "proxy-authorization",
    ],
)
async def test_it_stays_behind(name: str) -> None:
    async with lab() as made:
        answer = await made.post(made.open(), **{name: "https://evil.example"})
        assert answer.status == 200
        [asked] = made.endpoint.asked
        assert name not in asked.headers
        assert asked.headers["authorization"] == f"Bearer {SECRET}"
