"""A client with someone else's key, a used-up one, none, or several: nothing of it reaches a model."""

from __future__ import annotations

import pytest

from tests.unit.gateway_lab import SECRET, Answered, lab


def refused(answer: Answered, code: str = "invalid_session_key") -> bool:
    return (answer.status, answer.code, answer.headers["x-should-retry"]) == (401, code, "false")


async def test_a_key_is_good_at_its_own_session_alone() -> None:
    async with lab() as made:
        mine, other = made.open("mine"), made.open("other")
        for route in ("chat/completions", "embeddings", "models", "collect", "nowhere"):
            method = "GET" if route == "models" else "POST"
            assert refused(await made.ask(method, f"{other.path}/{route}", key=mine.key, body=b"{}"))
        assert refused(await made.ask("DELETE", other.path, key=mine.key))
        assert refused(await made.ask("POST", "/sessions/nobody/v1/chat/completions", key=mine.key, body=b"{}"))
        assert not other.is_over
        assert made.endpoint.asked == []


async def test_a_used_up_key_is_known_as_such_and_still_no_key() -> None:
    async with lab() as made:
        session = made.open()
        await session.close()
        assert refused(await made.post(session), "session_over")
        assert refused(await made.ask("POST", f"{session.path}/collect", key=session.key), "session_over")
        assert made.endpoint.asked == []


@pytest.mark.parametrize("key", [None, "", "x", SECRET, "' or '1'='1", "x" * 10_000])
async def test_no_key_and_a_key_of_nobody_are_refused(key: str | None) -> None:
    async with lab() as made:
        session = made.open()
        answer = await made.ask("POST", f"{session.path}/chat/completions", key=key, body=b"{}")
        assert refused(answer)
        assert session.key not in answer.body.decode()


@pytest.mark.parametrize(
    "shown",
    [
        "{key}",
        "Basic {key}",
        "Bearer  {key} x",
        "Bearer {key},Bearer {key}",
        "Bearer {key}\r\nAuthorization: Bearer {key}",
        "Bearer {key}\r\nauthorization: Bearer other",
        "Bearer \xe4{key}",
        "Bearer {key}\xa0",
    ],
)
async def test_a_key_that_is_not_shown_in_the_one_way_is_none(shown: str) -> None:
    async with lab() as made:
        session = made.open()
        headers = {"authorization": shown.format(key=session.key)}
        answer = await made.ask("POST", f"{session.path}/chat/completions", key=None, body=b"{}", headers=headers)
        assert refused(answer)
        assert made.endpoint.asked == []


@pytest.mark.parametrize("place", ["x-api-key", "api-key", "cookie", "proxy-authorization"])
async def test_a_key_in_another_place_is_none(place: str) -> None:
    async with lab() as made:
        session = made.open()
        headers = {place: session.key}
        answer = await made.ask("POST", f"{session.path}/chat/completions", key=None, body=b"{}", headers=headers)
        assert refused(answer)
