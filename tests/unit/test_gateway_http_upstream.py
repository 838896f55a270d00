"""What is asked of a model's server, with whose credential, and what a 401 leads to."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from benchmax.transport import aclose_transports
from runner.errors import CredentialSourceError, HeadersRefusedError
from runner.gateway.exchange import ModelCall
from runner.gateway.http_upstream import HttpUpstream
from runner.gateway.rejection import Rejections
from runner.limits import Limits
from tests.unit.gateway_lab import QUESTION, SECRET, Asked, Keys, Wire, completion, lab


async def only_new_keys(asked: Asked, wire: Wire) -> None:
    if asked.headers["authorization"] == "Bearer new":
        await wire.whole(completion())
    else:
        await wire.whole({"error": {"message": f"bad key {asked.headers['authorization']}"}}, 401)


async def test_a_refused_credential_is_told_to_its_source_and_tried_once_more() -> None:
    async with lab() as made:
        made.endpoint.doing = only_new_keys
        made.keys = Keys(["old", "new"], worth_another_try=True)
        assert (await made.post(made.open())).status == 200
        assert [told["Authorization"] for told in made.keys.told] == ["Bearer old"]
        assert [asked.headers["authorization"] for asked in made.endpoint.asked] == ["Bearer old", "Bearer new"]
        assert {asked.body for asked in made.endpoint.asked} == {made.endpoint.asked[0].body}


@pytest.mark.parametrize(
    "keys",
    [
        Keys(["old"], worth_another_try=False),
        # another try with the same would be no other
        Keys(["old"], worth_another_try=True),
        Keys(["old", "old"], worth_another_try=True),
    ],
)
async def test_a_credential_that_stays_refused_is_an_error_that_shows_nothing_of_it(keys: Keys) -> None:
    async with lab() as made:
        made.endpoint.doing = only_new_keys
        made.keys = keys
        answer = await made.post(made.open())
        assert (answer.status, answer.code, answer.headers["x-should-retry"]) == (401, "credential_failed", "false")
        assert b"old" not in answer.body
        assert len(made.endpoint.asked) == 1


async def test_one_more_try_is_one() -> None:
    async with lab() as made:
        made.endpoint.doing = only_new_keys
        made.keys = Keys(["older", "old", "new"], worth_another_try=True)
        assert (await made.post(made.open())).code == "credential_failed"
        assert len(made.endpoint.asked) == 2


async def test_many_rollouts_with_one_source_tell_it_once_of_the_same_refusal() -> None:
    async with lab() as made:
        arrived = asyncio.Barrier(8)

        async def all_at_once(asked: Asked, wire: Wire) -> None:
            if asked.headers["authorization"] == "Bearer old":
                await arrived.wait()
            await only_new_keys(asked, wire)

        made.endpoint.doing = all_at_once
        made.keys = Keys(["old", "new"], worth_another_try=True)
        shared = Rejections()
        sessions = [
            made.open(f"r{n}", upstream=made.gateway.upstream(made.endpoint.url, made.keys, rejections=shared))
            for n in range(8)
        ]
        answers = await asyncio.gather(*(made.post(session) for session in sessions))
        assert [answer.status for answer in answers] == [200] * 8
        assert len(made.keys.told) == 1


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (CredentialSourceError("the source raised OSError."), 502),
        (HeadersRefusedError("binding 'judge' does not cover it.", hint="Add urls=."), 403),
    ],
)
async def test_a_source_without_headers_is_an_error_and_nothing_is_sent(error: Exception, status: int) -> None:
    class Broken(Keys):
        async def headers(self, call: ModelCall) -> Mapping[str, str]:
            raise error

    async with lab() as made:
        made.keys = Broken()
        answer = await made.post(made.open())
        assert (answer.status, answer.code) == (status, "credential_failed")
        assert answer.json["error"]["message"] == str(error)
        assert made.endpoint.asked == []


async def test_what_the_source_sets_goes_over_what_the_client_sent() -> None:
    class Custom(Keys):
        async def headers(self, call: ModelCall) -> Mapping[str, str]:
            return {"User-Agent": "the caller's", "api-key": SECRET}

    async with lab() as made:
        made.keys = Custom()
        session = made.open()
        await made.post(session, user_agent="the client's", api_key="x", content_type="application/json")
        [asked] = made.endpoint.asked
        assert asked.headers["user-agent"] == "the caller's"
        assert asked.headers["api-key"] == SECRET
        assert asked.headers["content-type"] == "application/json"
        assert "authorization" not in asked.headers


@pytest.mark.parametrize("status", [307, 308])
async def test_a_redirect_within_the_same_origin_is_followed_with_the_same_request(status: int) -> None:
    async with lab() as made:

        async def moved(_: Asked, wire: Wire) -> None:
            await wire.whole(b"", status, headers=[("location", "/v2/chat/completions")])

        async def here(_: Asked, wire: Wire) -> None:
            await wire.whole(completion())

        made.endpoint.script(moved, here)
        assert (await made.post(made.open())).status == 200
        first, second = made.endpoint.asked
        assert second.target == "/v2/chat/completions"
        assert (second.method, second.json) == ("POST", QUESTION)
        assert second.headers["authorization"] == first.headers["authorization"]


async def test_connections_are_used_again() -> None:
    async with lab() as made:
        session = made.open()
        for stream in (False, True, False, True):
            assert (await made.post(session, {**QUESTION, "stream": stream})).status == 200
        assert made.endpoint.open == 1


async def test_connections_to_models_close_with_the_gateway_and_those_of_others_do_not() -> None:
    async with lab() as made:
        shared = HttpUpstream(made.endpoint.url, made.keys, limits=Limits())
        await made.post(made.open("own"))
        await made.post(made.open("shared", upstream=shared))
        assert made.endpoint.open == 2
        await made.gateway.aclose()
        await made.endpoint.until(lambda: made.endpoint.open == 1)
        await aclose_transports()
        await made.endpoint.until(lambda: made.endpoint.open == 0)


async def test_a_stream_that_has_said_its_last_ends_at_once_though_its_connection_does_not() -> None:
    async def linger(_: Asked, wire: Wire) -> None:
        await wire.begin()
        await wire.event("[DONE]")
        await wire.until_gone()

    async with lab() as made:
        made.endpoint.doing = linger
        answer = await made.post(made.open(), {**QUESTION, "stream": True})
        assert answer.events == ["[DONE]"]
        await made.endpoint.until(lambda: made.endpoint.open == 0)


def test_a_base_url_that_is_read_in_several_ways_is_none() -> None:
    async def make() -> None:
        async with lab() as made:
            for url in ("ftp://x/v1", "http://user@x/v1", "http://x/v1/..", "x", "http://x\\y"):
                with pytest.raises(ValueError):
                    made.gateway.upstream(url, made.keys)

    asyncio.run(make())
