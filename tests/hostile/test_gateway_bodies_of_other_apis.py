"""A request of another API than those that are judged goes on byte for byte: it may be signed, or mean its spelling."""

from __future__ import annotations

import pytest

from tests.unit.gateway_lab import lab
from tests.unit.test_gateway_intercepting import ask, intercepted

BODIES = [
    b'{"b": 1.50, "a": 1E5, "name": "\\u00e9\\/"}',
    b'{ "twice": 1, "twice": 2 }\n',
    b'{"n": NaN, "big": 123456789012345678901234567890}',
    b'["no", "object"]',
    b"a=form&of=fields",
    b"\xff\x00\xfe",
]


@pytest.mark.parametrize("body", BODIES)
async def test_it_arrives_as_it_was_sent(body: bytes) -> None:
    async with lab() as made:
        session = made.open("judge", rollout_id="r", binding="judge", at=[made.endpoint.url])
        async with intercepted(made, made.endpoint.url.removesuffix("/v1")) as client:
            answer = await ask(client, "POST", "/v1/rerank", session.key, body)
        assert answer.status in (200, 502)
        [asked] = made.endpoint.asked
        assert asked.body == body
