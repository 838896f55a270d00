"""A server that shows the real credential in a header of its answer does not show it to the worker."""

from __future__ import annotations

import pytest

from tests.unit.gateway_lab import SECRET, Asked, Wire, completion, lab


@pytest.mark.parametrize(
    "name", ["x-request-id", "openai-organization", "x-ratelimit-key", "retry-after", "content-type"]
)
async def test_a_header_of_an_answer_is_cleaned(name: str) -> None:
    async def echo(asked: Asked, wire: Wire) -> None:
        if name == "content-type":
            await wire.whole(completion(), content_type=f"application/json; key={SECRET}")
        else:
            await wire.whole(completion(), headers=[(name, asked.headers["authorization"])])

    async with lab() as made:
        made.endpoint.doing = echo
        answer = await made.post(made.open())
        assert answer.status == 200
        assert SECRET not in str(answer.headers)
        assert SECRET not in str(made.traces)
