"""Workers get no credential: they reach models and judges through the gateway, with clients that are unchanged."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmax.auth import ModelRequestContext, StaticBearerAuth
from runner import Binding, Limits, RecordEvent, UnreachableEvent, UsageError, isolate
from runner.models import mock_command
from runner.provision import Cache
from runner.sandbox import probe
from runner.sandbox.policy import Level
from tests.conftest import require
from tests.contract.loopback import Received, Reply, completion, running_server
from tests.integration.environments import failing
from tests.integration.example_environment import EXAMPLES, load_example, run_groups
from tests.integration.isolation import bundled
from tests.integration.mediation import BOTH, JUDGE, Opened, credentials_at, said
from tests.integration.mediation import opened as opened
from tests.integration.mediation import places as places
from tests.integration.model_process import running
from tests.integration.places import Places

pytestmark = pytest.mark.integration

# -- rollouts and their models --------------------------------------------------------------------------------


@BOTH
async def test_the_server_gets_the_callers_credential_and_the_worker_a_key_of_its_own(
    network: str, opened: Opened
) -> None:
    records: list[Any] = []

    def on_event(event: Any) -> None:
        if isinstance(event, RecordEvent):
            records.append(event.record)

    with running_server() as server:
        async with opened("ask", "own_headers", network=network, on_event=on_event) as (env, run):
            assert env.credentials == "gateway"
            assert said(await run("ask", base_url=server.url)) == "42"
            url, backwards = said(await run("own_headers", base_url=server.url))
            audit = env.audit
    assert credentials_at(server) == ["Bearer model-credential"]
    assert "credential" not in backwards[::-1]
    assert url.endswith("/sessions/own_headers-0/v1")
    assert url.startswith("http://benchmax-gateway/" if network == "model-only" else "http://127.0.0.1:")
    # as the caller knows it, and only what was given out
    assert [(entry.base_url, entry.rollout_id, entry.verdict) for entry in audit] == [(server.url, "ask-0", "answered")]
    asked, idle = records
    assert [(call.status, call.call.route, call.call.rollout_id) for call in asked.calls] == [
        (200, "chat/completions", "ask-0")
    ]
    assert (asked.num_calls, idle.num_calls, idle.calls) == (1, 0, ())


@pytest.mark.parametrize("level", ["off", "landlock", "namespaces"])
async def test_every_level_has_a_way_to_the_gateway(level: Level, opened: Opened) -> None:
    require(probe.availability(level).available, f"the sandbox level {level}")
    with running_server() as server:
        async with opened("ask", network="open", sandbox=level) as (_, run):
            assert said(await run("ask", base_url=server.url)) == "42"


async def test_a_models_own_server_cannot_be_reached(opened: Opened, places: Places) -> None:
    url = "http://api.example:8080/v1"
    async with (
        places.model("api.example", 8080),
        opened("ask", "connect api.example 8080", endpoints=[url]) as (env, run),
    ):
        assert said(await run("ask", base_url=url)) == "api.example"
        assert "Name or service not known" in said(await run("connect api.example 8080", base_url=url))[1]
        assert [str(place) for place in env.connections] == ["benchmax-gateway:80"]


async def test_a_request_for_another_model_is_refused_as_with_headers(opened: Opened) -> None:
    with running_server() as server:
        async with opened("ask other", network="open") as (_, run):
            status, code, text = said(await run("ask other", base_url=server.url))
    assert (status, code) == (400, "invalid_request")
    assert "for the model 'm'" in text
    assert server.requests == []


async def test_a_model_that_cannot_be_reached_is_told_with_the_reason(opened: Opened) -> None:
    events: list[Any] = []
    async with opened("ask", on_event=events.append) as (env, run):
        status, code, _ = said(await run("ask", base_url="http://127.0.0.1:9/v1"))
        failed = {str(place): count.failed for place, count in env.connections.items()}
    assert (status, code) == (502, "upstream_unreachable")
    assert failed == {"benchmax-gateway:80": 0, "127.0.0.1:9": 1}
    assert [event.endpoint for event in events if isinstance(event, UnreachableEvent)] == ["127.0.0.1:9"]


async def test_two_workers_share_one_gateway(opened: Opened) -> None:
    with running_server() as server:
        async with opened("ask", workers=2) as (env, run):
            outcomes = await asyncio.gather(*(run("ask", base_url=server.url, prefix=f"r{k}") for k in range(6)))
            assert [said(outcome) for outcome in outcomes] == ["42"] * 6
            assert [entry.answered for entry in env.audit] == [True] * 6
    assert credentials_at(server) == ["Bearer model-credential"] * 6


async def test_rollouts_with_the_same_id_one_after_the_other_and_at_once_do_not_mix(opened: Opened) -> None:
    with running_server() as server:
        async with opened("ask", network="open") as (_, run):
            auths = [StaticBearerAuth(f"credential-{k}") for k in range(3)]
            outcomes = await asyncio.gather(*(run("ask", base_url=server.url, prefix="r", auth=a) for a in auths))
            assert [said(outcome) for outcome in outcomes] == ["42"] * 3
    assert sorted(credentials_at(server)) == [f"Bearer credential-{k}" for k in range(3)]


async def test_an_example_gives_the_same_outcomes_whichever_way_it_is_given_credentials(
    shared_cache: Path, tmp_path: Path
) -> None:
    """Tools, mistakes, a model that answers with an error, too many turns: a client sees no difference."""
    blocker = probe.network_blocker()
    require(blocker is None, f"a network of its own ({blocker})")
    folder = EXAMPLES / "calculator"
    bundle = bundled(load_example("calculator"), "Calculator")
    command = mock_command(folder / "mock.json")
    found = []
    ways: list[dict[str, Any]] = [{"credentials": "headers"}, {"credentials": "gateway"}, {"network": "model-only"}]
    for number, options in enumerate(ways):
        async with isolate(bundle, cache=Cache(shared_cache), **options) as env:
            with running(command, tmp_path / f"stderr{number}") as model:
                found.append(await run_groups(env, model, folder, split="eval", examples=2, group_size=6))
    assert found[0] == found[1] == found[2]
    assert {o.termination_reason for group in found[0] for o in group.values()} == {
        "finished", "model_error", "max_turns_exceeded",
    }  # fmt: skip


async def test_an_environment_whose_model_must_be_reachable_from_elsewhere_is_refused(shared_cache: Path) -> None:
    with pytest.raises(UsageError, match="the gateway can be reached by its workers alone"):
        async with isolate(bundled(failing, "Outspoken"), credentials="gateway", cache=Cache(shared_cache)):
            pass


# -- keys -----------------------------------------------------------------------------------------------------


async def test_the_key_of_a_rollout_that_is_over_is_good_for_nothing(opened: Opened) -> None:
    acts = ["keep mine", "use_kept mine there", "use_kept mine here"]
    with running_server() as server:
        async with opened(*acts, network="open") as (_, run):
            assert said(await run("keep mine", base_url=server.url)) == "kept"
            for where in ("there", "here"):
                status, code, _ = said(await run(f"use_kept mine {where}", base_url=server.url))
                assert (status, code) == (401, "session_over")
    assert server.requests == []


async def test_a_key_is_good_at_its_own_address_alone(opened: Opened) -> None:
    """Siblings share a worker, and so can see each other's keys; each is still only for its own model."""
    with running_server() as server:
        async with opened("pass_on", network="open") as (_, run):
            outcome = await run("pass_on", base_url=server.url, count=2)
    status, code, _ = said(outcome)
    assert (status, code) == (401, "invalid_session_key")
    assert server.requests == []


async def test_a_binding_cannot_be_used_at_the_address_of_a_rollout_of_another_call(opened: Opened) -> None:
    with running_server() as server:
        acts = ["keep mine", "judge_at_kept mine"]
        async with opened(*acts, network="open", auth={"judge": JUDGE}) as (env, run):
            await run("keep mine", base_url=server.url)
            _, text = said(await run("judge_at_kept mine", base_url=server.url))
            assert [entry.verdict for entry in env.audit] == ["refused"]
    assert "no rollout of this call has its session at" in text
    assert server.requests == []


async def test_a_rollout_that_is_out_of_time_has_no_key_any_more_and_its_call_is_cut(opened: Opened) -> None:
    with running_server() as server:
        server.answer = lambda received: Reply(completion("late").body, held=True)
        async with opened("ask", network="open", limits=Limits(rollout_s=1.0)) as (_, run):
            outcome = await run("ask", base_url=server.url)
            server.wait_for_connections_left(0)
    assert outcome.termination_reason == "rollout_timeout"


# -- credential sources ---------------------------------------------------------------------------------------


class Renewing:
    """Keeps a token until it is told that it was rejected."""

    def __init__(self) -> None:
        self.number = 1
        self.rejected_tokens: list[str] = []

    async def headers_for_request(self, context: ModelRequestContext) -> Mapping[str, str]:
        return {"Authorization": f"Bearer renewed-{self.number:04d}"}

    async def rejected(self, context: ModelRequestContext, headers: Mapping[str, str]) -> None:
        self.rejected_tokens.append(headers["Authorization"])
        await asyncio.sleep(0)
        self.number += 1


def valid(token: str) -> Callable[[Received], Reply]:
    def answer(received: Received) -> Reply:
        if received.headers["authorization"] == f"Bearer {token}":
            return completion("in")
        return Reply({"error": {"message": f"bad {received.headers['authorization']}", "code": "expired"}}, status=401)

    return answer


async def test_a_source_is_told_once_of_a_rejected_token_however_many_rollouts_use_it(opened: Opened) -> None:
    source = Renewing()
    with running_server() as server:
        server.answer = valid("renewed-0002")
        async with opened("ask", network="open") as (_, run):
            outcomes = await asyncio.gather(
                *(run("ask", base_url=server.url, auth=source, prefix=f"r{k}") for k in range(4))
            )
    assert [said(outcome) for outcome in outcomes] == ["in"] * 4
    assert source.rejected_tokens == ["Bearer renewed-0001"]


async def test_a_token_that_stays_rejected_reaches_the_client_as_401_without_the_token(opened: Opened) -> None:
    with running_server() as server:
        server.answer = valid("nobody-has-this")
        for source in (Renewing(), StaticBearerAuth("stale-credential")):
            async with opened("ask", network="open") as (_, run):
                status, code, text = said(await run("ask", base_url=server.url, auth=source))
            assert (status, code) == (401, "credential_failed")
            assert "Bearer" not in text
    # one more try, and no more; none where nobody could have another token
    assert credentials_at(server) == ["Bearer renewed-0001", "Bearer renewed-0002", "Bearer stale-credential"]


async def test_a_source_that_fails_is_told_to_the_client_without_its_own_words(opened: Opened) -> None:
    class Failing:
        async def headers_for_request(self, context: ModelRequestContext) -> Mapping[str, str]:
            raise LookupError("the vault at vault.internal is closed")

    with running_server() as server:
        async with opened("ask", network="open") as (env, run):
            _, code, text = said(await run("ask", base_url=server.url, auth=Failing()))
            (entry,) = env.audit
    assert code == "credential_failed"
    assert "raised LookupError" in text
    assert "vault.internal" not in text
    assert (entry.verdict, "vault.internal" in entry.reason) == ("failed", True)
    assert server.requests == []


# -- who answers ----------------------------------------------------------------------------------------------


class Listening:
    """An exchange that only listens."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str | None]] = []
        self.traces: list[Any] = []

    def upstream(self, rollout_id: str, binding: str | None, default: Any) -> Any:
        self.asked.append((rollout_id, binding))
        return default

    def finished(self, trace: Any) -> None:
        self.traces.append(trace)


async def test_an_exchange_knows_who_asks_under_which_binding(opened: Opened) -> None:
    exchange = Listening()
    with running_server() as server:
        arguments = {"score_url": server.url}
        bound = {"judge": Binding(JUDGE, urls=[server.url])}
        async with opened("judge", arguments=arguments, auth=bound, exchange=exchange) as (_, run):
            await run("judge", base_url=server.url, count=2)
    assert sorted(exchange.asked, key=str) == [
        ("group judge-0", "judge"), ("judge-0", "judge"), ("judge-0", None), ("judge-1", "judge"), ("judge-1", None),
    ]  # fmt: skip
    assert sorted((t.call.rollout_id, t.call.binding, t.call.number, t.status) for t in exchange.traces) == [
        ("group judge-0", "judge", 0, 200), ("judge-0", "judge", 0, 200), ("judge-1", "judge", 0, 200),
    ]  # fmt: skip
