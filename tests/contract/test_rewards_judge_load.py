"""Many requests to a judge at once: bounded, on shared connections, none hurt by another."""

from __future__ import annotations

import asyncio

import pytest

import benchmax.rewards.judge as judge_module
from benchmax.auth import StaticBearerAuth
from benchmax.rewards import Judge, JudgeError
from benchmax.transport import rollout_client
from tests.contract.loopback import ModelServer, Received, Reply, completion, error
from tests.contract.rewards_lab import judge_at


async def test_siblings_are_answered_while_one_request_fails(model_server: ModelServer) -> None:
    def decide(received: Received) -> Reply:
        return error(500, None) if received.body["messages"][0]["content"] == "bad" else completion("{}")

    model_server.answer = decide
    judge = judge_at(model_server, max_retries=0)
    outcomes = await asyncio.gather(
        *(judge.request_json(prompt, request_id="r") for prompt in ("good", "bad", "good")), return_exceptions=True
    )
    assert outcomes[0] == outcomes[2] == ({}, "{}")
    assert isinstance(outcomes[1], JudgeError)


async def test_requests_share_connections_but_no_cookies(model_server: ModelServer) -> None:
    cookie = [("set-cookie", "session=1; Path=/")]
    model_server.answer = lambda received: Reply(completion("{}").body, headers=cookie)
    for _ in range(3):
        await judge_at(model_server).request_json("p", request_id="r")
    assert {received.connection for received in model_server.requests} == {1}
    assert not any("cookie" in received.headers for received in model_server.requests)


async def test_a_judge_and_a_model_at_one_address_share_connections(model_server: ModelServer) -> None:
    model_server.answer = lambda received: completion("{}")
    async with rollout_client(model_server.url) as client:
        await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "p"}])
    await judge_at(model_server).request_json("p", request_id="r")
    assert {received.connection for received in model_server.requests} == {1}


async def test_requests_in_flight_to_one_url_are_bounded(
    model_server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judge_module, "MAX_IN_FLIGHT", 2)
    model_server.answer = lambda received: Reply(completion("{}").body, held=True)
    judge = judge_at(model_server)
    tasks = [asyncio.create_task(judge.request_json("p", request_id="r")) for _ in range(5)]
    await asyncio.to_thread(model_server.wait_for_requests, 2)
    # another URL, for which the place is free, is served meanwhile and so shows that the rest has had its chance
    elsewhere = Judge("m", model_server.url.replace("127.0.0.1", "localhost"), StaticBearerAuth("t"), 5, 0)
    other = asyncio.create_task(elsewhere.request_json("p", request_id="r"))
    await asyncio.to_thread(model_server.wait_for_requests, 3)
    assert model_server.open_connections == 3
    model_server.release()
    await asyncio.gather(*tasks, other)
    assert len(model_server.requests) == 6


@pytest.mark.parametrize(
    "ending", [error(500, None), error(401, None), completion("prose"), Reply(dropped=True), Reply(held=True)],
    ids=["status 500", "status 401", "prose", "lost", "time-out"],
)  # fmt: skip
async def test_a_place_is_given_back_however_a_request_ends(
    model_server: ModelServer, monkeypatch: pytest.MonkeyPatch, ending: Reply
) -> None:
    monkeypatch.setattr(judge_module, "MAX_IN_FLIGHT", 1)
    judge = judge_at(model_server, max_retries=0, auth_attempts=1, timeout=0.2)
    model_server.answer = lambda received: ending
    for _ in range(2):
        with pytest.raises(JudgeError):
            await judge.request_json("p", request_id="r")
    model_server.answer = lambda received: completion("{}")
    assert await judge_at(model_server).request_json("p", request_id="r") == ({}, "{}")


async def test_a_request_that_is_cancelled_while_it_waits_takes_no_place(
    model_server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judge_module, "MAX_IN_FLIGHT", 1)
    model_server.answer = lambda received: Reply(completion("{}").body, held=True)
    judge = judge_at(model_server)
    first, waiting, last = (asyncio.create_task(judge.request_json(p, request_id="r")) for p in ("1", "2", "3"))
    await asyncio.to_thread(model_server.wait_for_requests, 1)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    model_server.release()
    assert await first == await last == ({}, "{}")
    assert [received.body["messages"][0]["content"] for received in model_server.requests] == ["1", "3"]


async def test_a_burst_of_requests_opens_no_more_connections_than_it_has_places_and_the_next_none(
    model_server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judge_module, "MAX_IN_FLIGHT", 4)
    model_server.answer = lambda received: completion("{}")
    # judges of their own, as each environment makes one
    for _ in range(2):
        await asyncio.gather(*(judge_at(model_server).request_json("p", request_id="r") for _ in range(20)))
    assert len(model_server.requests) == 40
    assert model_server.connections <= 4
