"""Headers may hold any byte beyond ASCII: they go on as they came, and nothing of the gateway breaks."""

from __future__ import annotations

import asyncio

from tests.unit.gateway_lab import lab


async def test_a_header_beyond_ascii_goes_on_or_is_refused_in_words() -> None:
    loop, broken = asyncio.get_running_loop(), []
    loop.set_exception_handler(lambda _, context: broken.append(context))
    async with lab() as made:
        session = made.open()
        answer = await made.post(session, user_agent="caf\xe9 \xff")
        assert answer.status == 200
        assert made.endpoint.asked[0].headers["user-agent"] == "caf\xe9 \xff"
    assert broken == []
