"""Isolated environments with a network of their own: clients go on working unchanged, and reach what was named.

Here they connect to models themselves; with the gateway between them, `test_isolated_gateway` has the same.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmax.envs import RolloutOutcome
from runner import RecordEvent, SandboxUnavailableError, UnreachableEvent, isolate
from runner.isolated import IsolatedEnvironment
from runner.provision import Cache
from runner.sandbox import probe
from tests.conftest import require
from tests.integration.environments import calling
from tests.integration.isolation import bundled, run_one, until
from tests.integration.places import Places, certificate

pytestmark = pytest.mark.integration

Acts = Callable[..., Any]
Opened = Callable[..., AbstractAsyncContextManager[tuple[IsolatedEnvironment, Acts]]]


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> Places:
    return Places(monkeypatch)


@pytest.fixture
def opened(shared_cache: Path, tmp_path: Path) -> Opened:
    @asynccontextmanager
    async def opened(*acts: str, **options: Any) -> AsyncIterator[tuple[IsolatedEnvironment, Acts]]:
        blocker = probe.network_blocker()
        require(blocker is None, f"a network of its own ({blocker})")
        bundle = bundled(calling, "Calling", acts=list(acts))
        options = {"network": "model-only", "credentials": "headers", **options}
        async with isolate(bundle, cache=Cache(shared_cache), **options) as env:
            dataset = await env.create_dataset("eval", tmp_path)

            async def run(act: str, **more: Any) -> RolloutOutcome:
                (outcome,) = (await run_one(env, dataset, act, **more)).values()
                return outcome

            yield env, run

    return opened


def said(outcome: RolloutOutcome) -> Any:
    assert outcome.error is not None
    return json.loads(outcome.error)


async def test_a_client_asks_a_model_under_its_name_over_tls_with_its_own_authority(
    opened: Opened, places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require(shutil.which("openssl"), "openssl")
    authority, server = certificate(tmp_path, "api.example")
    monkeypatch.setenv("SSL_CERT_FILE", str(authority))
    url = "https://api.example/v1"
    async with places.model("api.example", 443, tls=server) as model, opened("ask", endpoints=[url]) as (env, run):
        assert said(await run("ask", base_url=url)) == "api.example"
        assert [(str(place), count.connections) for place, count in env.connections.items()] == [("api.example:443", 1)]
    assert model.headers[0]["host"] == "api.example"


async def test_a_stream_arrives_piece_by_piece(opened: Opened, places: Places) -> None:
    url = "http://api.example/v1"
    async with places.model("api.example", 80), opened("stream", endpoints=[url]) as (_, run):
        assert said(await run("stream", base_url=url)) == ["one", "two", "three"]


async def test_two_names_with_one_port_are_two_places(opened: Opened, places: Places) -> None:
    one, two = "http://one.example:8080/v1", "http://two.example:8080/v1"
    async with (
        places.model("one.example", 8080),
        places.model("two.example", 8080),
        opened("ask", f"ask {two}", endpoints=[one], allow=["two.example:8080"]) as (_, run),
    ):
        assert said(await run("ask", base_url=one)) == "one.example"
        assert said(await run(f"ask {two}", base_url=one)) == "two.example"


@pytest.mark.parametrize("host", ["10.77.0.5", "2001:db8::5", "127.0.0.1", "localhost"])
async def test_addresses_are_found_as_what_they_are(host: str, opened: Opened, places: Places) -> None:
    url = f"http://[{host}]/v1" if ":" in host else f"http://{host}/v1"
    async with places.model(host, 80), opened("ask", endpoints=[url]) as (_, run):
        assert said(await run("ask", base_url=url)) == host


async def test_what_was_not_named_cannot_be_reached(opened: Opened, places: Places) -> None:
    url = "http://api.example/v1"
    acts = ["connect other.example 80", "connect api.example 81", "connect 127.0.0.1 80", "connect 192.0.2.1 80"]
    async with places.model("api.example", 80), opened("ask", *acts, endpoints=[url]) as (_, run):
        assert said(await run("ask", base_url=url)) == "api.example"
        reasons = [said(await run(act, base_url=url))[1] for act in acts]
    assert "Name or service not known" in reasons[0]
    assert "Connection refused" in reasons[1]
    assert "Connection refused" in reasons[2]
    assert "Network is unreachable" in reasons[3]


async def test_with_no_network_there_is_nothing(opened: Opened) -> None:
    async with opened("ask", network="none") as (env, run):
        outcome = await run("ask")
        assert env.connections == {}
    assert said(outcome)[0] == "APIConnectionError"


async def test_a_place_that_does_not_answer_is_told_with_the_reason(opened: Opened, places: Places) -> None:
    events: list[Any] = []
    url = "http://gone.example/v1"
    async with places.model("gone.example", 80):
        pass
    async with opened("ask", endpoints=[url], on_event=events.append) as (env, run):
        outcomes = [await run("ask", base_url=url) for _ in range(2)]
        (count,) = env.connections.values()
    assert [said(outcome)[0] for outcome in outcomes] == ["APIConnectionError"] * 2
    assert (count.connections, count.failed, count.reason) == (0, 2, "Connection refused")
    told = [event for event in events if isinstance(event, UnreachableEvent)]
    assert told == [UnreachableEvent(endpoint="gone.example:80", reason="Connection refused")]


async def test_much_goes_through_both_ways_and_each_end_is_told(opened: Opened, places: Places) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard = await reader.read()
        writer.write(heard * 200_000)
        await writer.drain()

    act, url = "connect db.example 5432", "http://db.example:5432/v1"
    async with (
        places.serve("db.example", 5432, serve),
        opened(act, allow=["db.example:5432"]) as (_, run),
    ):
        outcome = await run(act, base_url=url)
    assert outcome.error is not None
    # an error text is bounded; what counts is that the whole of it came
    assert outcome.error.startswith('"hellohello')
    assert "left out" in outcome.error


async def test_a_worker_that_crashed_is_replaced_with_its_network(opened: Opened, places: Places) -> None:
    url = "http://api.example/v1"
    async with places.model("api.example", 80), opened("ask", "crash", endpoints=[url]) as (env, run):
        assert said(await run("ask", base_url=url)) == "api.example"
        assert (await run("crash", base_url=url)).termination_reason == "sandbox_error"
        assert said(await run("ask", base_url=url)) == "api.example"
        assert [count.connections for count in env.connections.values()] == [2]


async def test_workers_have_a_network_each(opened: Opened, places: Places) -> None:
    url = "http://api.example/v1"
    async with places.model("api.example", 80), opened("ask", endpoints=[url], workers=2) as (env, run):
        outcomes = await asyncio.gather(*(run("ask", base_url=url, prefix=f"r{k}") for k in range(6)))
        assert {said(outcome) for outcome in outcomes} == {"api.example"}
        assert [count.connections for count in env.connections.values()] == [6]


async def test_a_proxy_of_the_machine_is_not_looked_for_where_it_cannot_be_reached(
    opened: Opened, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.0 200 OK\r\n\r\ndirect")
        await writer.drain()

    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://proxy.example:3128")
    act, url = "fetch http://api.example/page", "http://api.example/v1"
    async with places.serve("api.example", 80, serve), opened(act, endpoints=[url]) as (_, run):
        assert said(await run(act, base_url=url)) == "direct"


async def test_a_request_for_a_model_that_cannot_be_reached_is_refused_before_anything_is_sent(
    opened: Opened, places: Places
) -> None:
    async with opened("ask", endpoints=["http://api.example/v1"]) as (_, run):
        with pytest.raises(ValueError, match=r"pass endpoints=\['https://other\.example'\]"):
            await run("ask", base_url="https://other.example/v1")
        # the path is the server's own business
        with pytest.raises(ValueError, match=r"endpoints=\['http://api\.example:81'\]"):
            await run("ask", base_url="http://api.example:81/v1")


@pytest.mark.parametrize("network", ["model-only", "none"])
@pytest.mark.parametrize("level", ["off", "landlock"])
def test_a_level_that_cannot_keep_the_network_away_is_refused(network: str, level: str) -> None:
    with pytest.raises(SandboxUnavailableError, match=f"network {network}: the sandbox level {level} leaves"):
        isolate(bundled(calling, "Calling", acts=[]), network=network, sandbox=level)


# -- secrets --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("network", ["open", "model-only"])
async def test_a_secret_is_there_inside_and_nowhere_outside(network: str, opened: Opened) -> None:
    events: list[Any] = []
    value = "postgres://me:hunter2secret@db.example/x"
    urls = {"endpoints": ["http://127.0.0.1:9"]} if network == "model-only" else {}
    options = {"network": network, "secrets": {"DATABASE_URL": value}, "on_event": events.append, **urls}
    async with opened("variable DATABASE_URL", **options) as (env, run):
        outcome = await run("variable DATABASE_URL")
        assert env.secrets == ("DATABASE_URL",)
        await until(lambda: any(isinstance(event, RecordEvent) for event in events), what="the record")
        output = env.output()
    found = said(outcome)
    assert found == {"length": len(value), "value": "[redacted]", "backwards": value[::-1]}
    everything = repr((outcome, events, output, env))
    assert value not in everything
    assert "hunter2secret" not in everything
    assert "printed: [redacted]" in everything
    assert "DATABASE_URL" not in os.environ
