"""Judges and embedders behind the gateway: at origins where it answers in their place, by unchanged clients."""

from __future__ import annotations

from typing import Any

import pytest

from benchmax.auth import InjectedAuth, bind_model_auth
from runner import Binding, UnreachableEvent
from runner.gateway import server as gateway_server
from tests.contract.loopback import running_server
from tests.integration.isolation import until
from tests.integration.mediation import BOTH, JUDGE, JUDGE_URL, Opened, credentials_at, said
from tests.integration.mediation import judge_over_tls as judge_over_tls
from tests.integration.mediation import opened as opened
from tests.integration.mediation import places as places

pytestmark = pytest.mark.integration


# -- bindings -------------------------------------------------------------------------------------------------


async def test_a_judge_at_its_own_origin_is_asked_over_tls_by_any_client(opened: Opened, judge_over_tls: Any) -> None:
    acts = [f"{act} {JUDGE_URL}" for act in ("judge", "judge_by_urllib", "judge_by_requests")]
    bound = {"judge": Binding(JUDGE, urls=[JUDGE_URL])}
    async with judge_over_tls() as judge, opened(*acts, auth=bound) as (env, run):
        for act in acts:
            assert said(await run(act)) == "judge.example"
            # as when its time is over: the next client is shown another certificate
            assert env._gateway is not None
            assert env._gateway._authority is not None
            env._gateway._authority._made.clear()
        counts = {str(place): count.connections for place, count in env.connections.items()}
        audit = env.audit
    assert counts["judge.example:8443"] == 3
    assert [headers["authorization"] for headers in judge.headers] == ["bearer judge-credential"] * 3
    assert {headers["host"] for headers in judge.headers} == {"judge.example:8443"}
    assert {(entry.binding, entry.base_url, entry.rollout_id) for entry in audit} == {
        ("judge", JUDGE_URL, "verdict"), ("judge", JUDGE_URL, "key"),
    }  # fmt: skip


async def test_a_stream_of_a_judge_arrives_piece_by_piece(opened: Opened, judge_over_tls: Any) -> None:
    act = f"judge_in_a_stream {JUDGE_URL}"
    async with judge_over_tls(), opened(act, auth={"judge": Binding(JUDGE, urls=[JUDGE_URL])}) as (_, run):
        assert said(await run(act)) == ["one", "two", "three"]


async def test_an_origin_without_tls_and_with_an_address_is_intercepted_too(opened: Opened) -> None:
    with running_server() as server:
        act = f"judge {server.url}"
        async with opened(act, auth={"judge": Binding(JUDGE, urls=[server.url])}) as (_, run):
            assert said(await run(act)) == "42"
    assert credentials_at(server) == ["Bearer judge-credential"]


@BOTH
async def test_a_judge_may_be_asked_at_the_rollouts_own_address(network: str, opened: Opened) -> None:
    with running_server() as server:
        for bound in (JUDGE, Binding(JUDGE, urls=[server.url])):
            async with opened("judge", network=network, auth={"judge": bound}) as (_, run):
                assert said(await run("judge", base_url=server.url)) == "42"
    assert credentials_at(server) == ["Bearer judge-credential"] * 2
    assert {received.target for received in server.requests} == {"/v1/chat/completions"}


async def test_a_binding_for_another_place_than_the_rollouts_model_is_refused_there(opened: Opened) -> None:
    with running_server() as server:
        bound = {"judge": Binding(JUDGE, urls=[JUDGE_URL])}
        async with opened("judge", network="open", auth=bound) as (_, run):
            _, text = said(await run("judge", base_url=server.url))
    assert f"binding 'judge' does not cover {server.url}" in text


async def test_where_the_gateway_cannot_be_a_binding_is_refused_with_what_to_do(opened: Opened) -> None:
    act, bound = f"judge {JUDGE_URL}", {"judge": Binding(JUDGE, urls=[JUDGE_URL])}
    async with opened(act, network="open", auth=bound) as (env, run):
        _, text = said(await run(act))
        assert [entry.verdict for entry in env.audit] == ["refused"]
    assert "binding 'judge' goes to https://judge.example:8443, where the gateway is not" in text
    assert "network='model-only'" in text
    async with opened(act) as (_, run):
        with bind_model_auth(bound):
            _, text = said(await run(act))
    assert "workers were started without it" in text
    assert "isolate(auth={'judge': Binding(..., urls=[...])})" in text


async def test_the_requests_own_auth_may_be_an_injected_one_of_the_caller(opened: Opened) -> None:
    with running_server() as server:
        async with opened("ask", network="open", auth={"mine": JUDGE}) as (_, run):
            assert said(await run("ask", base_url=server.url, auth=InjectedAuth("mine"))) == "42"
    assert credentials_at(server) == ["Bearer judge-credential"]


async def test_the_constructor_and_the_dataset_have_sessions_too_also_in_a_worker_that_replaces_another(
    opened: Opened,
) -> None:
    with running_server() as server:
        arguments = {"embed_url": server.url}
        auth = {"embedding": Binding(JUDGE, urls=[server.url])}
        async with opened(arguments=arguments, auth=auth) as (env, run):
            assert said(await run("say 42 42")) == ["42", "42"]
            assert [entry.rollout_id for entry in env.audit] == ["constructor", "dataset"]
            env._running().children[0]._process.kill()
            await until(lambda: bool(env.deaths), what="the worker's end")
            assert said(await run("say 42 42", prefix="again")) == ["42", "42"]
            assert [entry.rollout_id for entry in env.audit] == ["constructor", "dataset"] * 2
    assert credentials_at(server) == ["Bearer judge-credential"] * 4


async def test_a_worker_that_crashed_is_replaced_with_its_way_to_gateway_and_judge(
    opened: Opened, judge_over_tls: Any
) -> None:
    act, bound = f"judge {JUDGE_URL}", {"judge": Binding(JUDGE, urls=[JUDGE_URL])}
    with running_server() as server:
        async with judge_over_tls(), opened("ask", "crash", act, auth=bound) as (_, run):
            assert said(await run("ask", base_url=server.url)) == "42"
            assert (await run("crash", base_url=server.url)).termination_reason == "sandbox_error"
            assert said(await run("ask", base_url=server.url, prefix="again")) == "42"
            assert said(await run(act)) == "judge.example"


# -- clients that refuse --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("act", "reason"),
    [
        (f"judge_trusting_nobody {JUDGE_URL}", "its client does not trust the certificate of the run"),
        ("hang_up judge.example 8443", "its client gave up the TLS handshake"),
        ("hang_up judge.example 8443 GET/HTTP/1.1", "its client and the gateway cannot agree on TLS"),
        ("hang_on judge.example 8443", "its client gave up the TLS handshake (SSL handshake is taking longer than 0.2"),
    ],
)
async def test_a_client_that_does_not_go_through_with_tls_is_told_of_by_name(
    act: str, reason: str, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "hang_on" in act:
        monkeypatch.setattr(gateway_server, "GATEWAY_TLS_S", 0.2)
    events: list[Any] = []
    bound = {"judge": Binding(JUDGE, urls=[JUDGE_URL])}
    async with opened(act, auth=bound, on_event=events.append) as (env, run):
        await run(act)
        await until(lambda: any(count.failed for count in env.connections.values()), what="the failure")
    told = [(event.endpoint, event.reason) for event in events if isinstance(event, UnreachableEvent)]
    assert [(endpoint, reason in text) for endpoint, text in told] == [("judge.example:8443", True)], told
