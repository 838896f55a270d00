"""A client that sends more than it may is told so: by a library that writes all of it first, too."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
from openai import APIStatusError, AsyncOpenAI

from runner.limits import MIB
from tests.unit.gateway_lab import lab


@pytest.mark.parametrize("size", [2 * MIB, 40 * MIB])
@pytest.mark.parametrize("chunked", [False, True])
async def test_too_large_a_body_is_an_answer_and_no_broken_connection(size: int, chunked: bool) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(size // MIB):
            yield b" " * MIB

    async with lab(request_bytes=MIB) as made, httpx.AsyncClient(trust_env=False) as client:
        session = made.open()
        content = pieces() if chunked else b" " * size
        answer = await client.post(
            f"{made.url(session)}/chat/completions",
            content=content,
            headers={"authorization": f"Bearer {session.key}", "content-type": "application/json"},
        )
        assert answer.status_code == 413
        assert answer.json()["error"]["code"] == "request_too_large"


async def test_openai_s_client_raises_its_own_error_for_it() -> None:
    async with lab(request_bytes=MIB) as made:
        session = made.open()
        async with AsyncOpenAI(base_url=made.url(session), api_key=session.key, max_retries=0) as client:
            with pytest.raises(APIStatusError) as raised:
                await client.chat.completions.create(
                    model="some-model", messages=[{"role": "user", "content": "x" * 20 * MIB}]
                )
        assert raised.value.status_code == 413
