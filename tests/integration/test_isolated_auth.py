"""Credentials stay with the caller: headers are asked for per request, from anywhere, and leave no trace."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmax.auth import InjectedAuth, ModelRequestContext, StaticBearerAuth, bind_model_auth
from runner import Binding, RecordEvent, RemoteError, WorkerEvent, isolate
from runner.provision import Cache
from tests.contract.loopback import Received, completion, running_server
from tests.contract.loopback import call as tool_call
from tests.integration.environments import asking, documents, probing
from tests.integration.isolation import bundled, requests_for, run_one, texts, unconfined

pytestmark = pytest.mark.integration


class RotatingAuth:
    """A new token for every request; remembers what it was asked."""

    def __init__(self, name: str = "rotating") -> None:
        self.name = name
        self.asked: list[ModelRequestContext] = []
        self.pids: set[int] = set()

    async def headers_for_request(self, context: ModelRequestContext) -> Mapping[str, str]:
        self.asked.append(context)
        self.pids.add(os.getpid())
        return {"Authorization": f"Bearer {self.name}-token-{len(self.asked):04d}", "X-Extra": "extra-value"}

    def token(self, number: int) -> str:
        return f"{self.name}-token-{number:04d}"


@pytest.fixture
def probe(shared_cache: Path, tmp_path: Path) -> Callable[..., Any]:
    """Open a probing environment with options of `isolate` and its dataset."""

    @asynccontextmanager
    async def opened(judge_url: str = "http://127.0.0.1:9/v1", **options: Any) -> AsyncIterator[Any]:
        bundle = bundled(probing, "Probing", judge_url=judge_url)
        async with isolate(bundle, cache=Cache(shared_cache), **options) as env:
            yield env, await env.create_dataset("eval", tmp_path)

    return opened


async def test_a_rotating_token_is_asked_for_once_per_model_request_in_the_caller_and_leaves_no_trace(
    shared_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three turns of three siblings: nine requests, nine questions, nine different tokens at the server."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    auth = RotatingAuth()
    seen: dict[str, bytes] = {}
    pids: list[int] = []
    records: list[Any] = []

    def on_event(event: Any) -> None:
        if isinstance(event, WorkerEvent):
            pids.append(event.pid)
        if isinstance(event, RecordEvent):
            records.append(event.record)

    with running_server() as server:
        turns: dict[int, Any] = {1: "a", 3: "b"}

        def answer(received: Received) -> Any:
            # while a request is in flight the worker's whole surroundings are looked at from outside
            pid = pids[0]
            for name in ("environ", "cmdline"):
                seen[f"{pid} {name}"] = Path(f"/proc/{pid}/{name}").read_bytes()
            for path in tmp_path.rglob("*"):
                if path.is_file():
                    seen[str(path)] = path.read_bytes()
            turn = len(received.body["messages"])
            if turn in turns:
                return completion(None, calls=[tool_call("echo", json.dumps({"text": turns[turn]}))])
            return completion("done")

        server.answer = answer
        async with isolate(bundled(asking, "Asking"), cache=Cache(shared_cache), on_event=on_event) as env:
            dataset = await env.create_dataset("eval", tmp_path)
            outcomes = await env.run_group(requests_for(dataset[0], 3, auth=auth, base_url=server.url))
            output = env.output()
            audit = env.audit

    assert {outcome.termination_reason for outcome in outcomes.values()} == {"finished"}
    sent = [received.headers["authorization"] for received in server.requests]
    assert len(auth.asked) == len(sent) == 9
    assert sorted(sent) == [f"Bearer {auth.token(n)}" for n in range(1, 10)]
    assert {received.headers["x-extra"] for received in server.requests} == {"extra-value"}
    assert auth.pids == {os.getpid()}
    assert {context.rollout_id for context in auth.asked} == {"r-0", "r-1", "r-2"}
    assert seen
    for place, data in seen.items():
        assert b"rotating-token" not in data, place
    assert "rotating-token" not in f"{records}{output}{audit}{outcomes}"
    assert [entry.answered for entry in audit] == [True] * 9


async def test_a_sync_client_in_a_coroutine_gets_headers_while_it_blocks_the_loop(probe: Any) -> None:
    judge = RotatingAuth("judge")
    with running_server() as server:
        server.answer = lambda received: completion("judged")
        async with probe(server.url, auth={"judge": Binding(judge, urls=[server.url])}) as (env, dataset):
            outcomes = await run_one(env, dataset, "sync-client", count=2)
        assert texts(outcomes) == ["judged", "judged"]
        assert [received.headers["authorization"] for received in server.requests] == [
            "Bearer judge-token-0001",
            "Bearer judge-token-0002",
        ]


async def test_auth_resolved_in_a_thread_with_its_own_loop_works_while_the_main_loop_is_blocked(probe: Any) -> None:
    async with probe() as (env, dataset):
        outcomes = await run_one(env, dataset, "own-loop", auth=RotatingAuth())
    assert texts(outcomes) == ["['Authorization', 'X-Extra']"]


async def test_a_binding_without_urls_is_answered_for_the_model_endpoint_only(probe: Any) -> None:
    with running_server() as server:
        server.answer = lambda received: completion("judged")
        async with probe(server.url, auth={"judge": RotatingAuth("judge")}) as (env, dataset):
            same = await run_one(env, dataset, "sync-client", base_url=server.url)
            other = await _failure(run_one(env, dataset, "sync-client", prefix="other"))
    assert texts(same) == ["judged"]
    assert "does not cover" in other
    assert "urls=" in other


async def test_an_active_bind_model_auth_replaces_the_auth_argument_whole(probe: Any) -> None:
    with running_server() as server:
        server.answer = lambda received: completion("judged")
        argument, bound = Binding(RotatingAuth("argument"), urls=[server.url]), RotatingAuth("bound")
        async with probe(server.url, auth={"judge": argument}) as (env, dataset):
            with bind_model_auth({"judge": bound}):
                await run_one(env, dataset, "sync-client", base_url=server.url)
            await run_one(env, dataset, "sync-client", prefix="after")
            with bind_model_auth({"another": bound}):
                missing = await _failure(run_one(env, dataset, "sync-client", prefix="missing"))
    assert [received.headers["authorization"] for received in server.requests] == [
        "Bearer bound-token-0001",
        "Bearer argument-token-0001",
    ]
    assert "No runtime model-auth provider" in missing


async def test_a_worker_that_replaces_another_is_made_with_what_was_bound_at_the_first_time(
    shared_cache: Path, tmp_path: Path
) -> None:
    class Tenant:
        def __init__(self, name: str) -> None:
            self.name = name
            self.asked: list[str] = []

        async def headers_for_request(self, context: ModelRequestContext) -> Mapping[str, str]:
            self.asked.append(context.rollout_id)
            return {"X-Tenant": self.name}

    url = "https://embedding.example/v1"
    first, other = Tenant("first"), Tenant("other")
    bundle = bundled(documents, "Documents", url=url, marker=str(tmp_path / "marker"))
    with bind_model_auth({"embedding": Binding(first, urls=[url])}):
        env = unconfined(bundle, cache=Cache(shared_cache))
        async with env:
            dataset = await env.create_dataset("eval", tmp_path)
            with bind_model_auth({"embedding": Binding(other, urls=[url])}):
                (ended,) = (await env.run_group(requests_for(dataset[0]))).values()
                (outcome,) = (await env.run_group(requests_for(dataset[0], prefix="again"))).values()
    assert [example.id for example in dataset] == ["first and first"]
    assert (ended.termination_reason, outcome.termination_reason) == ("sandbox_error", "finished")
    assert first.asked == ["constructor", "dataset"] * 2
    assert other.asked == []


async def test_the_requests_own_auth_may_be_an_injected_one_of_the_caller(probe: Any) -> None:
    argument, bound = RotatingAuth("argument"), RotatingAuth("bound")
    async with probe(auth={"mine": argument}) as (env, dataset):
        outcomes = await run_one(env, dataset, "own-loop", auth=InjectedAuth("mine"))
        with bind_model_auth({"mine": bound}):
            await run_one(env, dataset, "own-loop", auth=InjectedAuth("mine"), prefix="bound")
    assert texts(outcomes) == ["['Authorization', 'X-Extra']"]
    assert (len(argument.asked), len(bound.asked)) == (1, 1)


async def test_a_name_that_nobody_bound_fails_in_the_worker_as_in_process(probe: Any) -> None:
    async with probe() as (env, dataset):
        (text,) = texts(await run_one(env, dataset, "unbound"))
    assert text is not None
    assert text.startswith("RuntimeError: No runtime model-auth provider")
    assert "nobody" in text


async def test_a_rollouts_auth_is_refused_for_another_url_and_after_its_end(probe: Any) -> None:
    auth = RotatingAuth()
    async with probe() as (env, dataset):
        (other,) = texts(await run_one(env, dataset, "other-url", auth=auth))
        assert texts(await run_one(env, dataset, "late", auth=auth)) == ["kept"]
        (late,) = texts(await run_one(env, dataset, "late", auth=auth, prefix="again"))
        audit = env.audit
    assert other is not None
    assert "evil.example" in other
    assert late is not None
    assert "outside of any call in flight" in late
    assert auth.asked == []
    assert [entry.answered for entry in audit] == [False, False]
    assert audit[0].base_url == "https://evil.example/v1"


async def test_what_was_handed_out_is_redacted_from_everything_that_comes_back(probe: Any) -> None:
    records: list[Any] = []

    def on_event(event: Any) -> None:
        if isinstance(event, RecordEvent):
            records.append(event.record)

    async with probe(on_event=on_event) as (env, dataset):
        outcomes = await run_one(env, dataset, "secret-text", auth=StaticBearerAuth("very-secret-value"))
        output = env.output()
    assert texts(outcomes) == ["leaked Bearer [redacted]"]
    assert "very-secret-value" not in f"{records}{output}"
    assert "[redacted]" in records[0].logs[0].text


async def test_a_failing_provider_fails_its_own_request_and_nothing_else(probe: Any) -> None:
    class Failing:
        async def headers_for_request(self, context: ModelRequestContext) -> Mapping[str, str]:
            raise LookupError("the vault is closed")

    async with probe() as (env, dataset):
        with pytest.raises(RemoteError) as raised:
            await run_one(env, dataset, "secret-text", auth=Failing())
        assert texts(await run_one(env, dataset, "ok")) == [None]
        audit = env.audit
    assert raised.value.remote_type.endswith("CredentialSourceError")
    assert "the caller's credential source raised LookupError" in raised.value.remote_message
    # its text is for the caller alone
    assert "the vault is closed" not in f"{raised.value}{raised.value.detail}"
    assert [entry.reason for entry in audit] == [
        "the caller's credential source raised LookupError. the vault is closed"
    ]


async def test_a_model_loop_whose_auth_fails_ends_as_its_model_failing_and_the_record_says_why(
    shared_cache: Path, tmp_path: Path
) -> None:
    class Failing:
        async def headers_for_request(self, context: ModelRequestContext) -> Mapping[str, str]:
            raise LookupError("the vault is closed")

    records: list[Any] = []
    on_event = lambda event: records.append(event.record) if isinstance(event, RecordEvent) else None  # noqa: E731
    async with isolate(bundled(asking, "Asking"), cache=Cache(shared_cache), on_event=on_event) as env:
        dataset = await env.create_dataset("eval", tmp_path)
        outcomes = await env.run_group(requests_for(dataset[0], 3, auth=Failing()))
    assert {(outcome.termination_reason, outcome.error) for outcome in outcomes.values()} == {("model_error", None)}
    assert all(record.infrastructure for record in records)
    assert "credential source raised LookupError" in records[0].error_text()


async def test_sixty_four_rollouts_with_an_expired_token_cost_one_sign_in(probe: Any) -> None:
    class Caching:
        """Knows no lock."""

        def __init__(self) -> None:
            self.token = ""
            self.sign_ins = 0

        async def headers_for_request(self, context: ModelRequestContext) -> Mapping[str, str]:
            if not self.token:
                self.sign_ins += 1
                await asyncio.sleep(0.05)
                self.token = f"session-token-{self.sign_ins}"
            return {"Authorization": f"Bearer {self.token}"}

    auth = Caching()
    async with probe(workers=2) as (env, dataset):
        for expected in (1, 2):
            groups = [
                run_one(env, dataset, "secret-text", count=8, auth=auth, prefix=f"{expected}-{number}")
                for number in range(8)
            ]
            outcomes = await asyncio.gather(*groups)
            assert auth.sign_ins == expected
            assert {text for group in outcomes for text in texts(group)} == {"leaked Bearer [redacted]"}
            auth.token = ""


async def test_a_credential_source_that_blocks_holds_up_its_own_rollout_only(probe: Any) -> None:
    class Blocking:
        def __init__(self) -> None:
            self.release = threading.Event()

        def headers_for_request(self, context: ModelRequestContext) -> Mapping[str, str]:
            self.release.wait(10)
            return {"Authorization": "Bearer patient-token"}

    auth: Any = Blocking()
    async with probe() as (env, dataset):
        slow = asyncio.ensure_future(run_one(env, dataset, "secret-text", auth=auth))
        assert texts(await run_one(env, dataset, "secret-text", auth=RotatingAuth(), prefix="quick")) == [
            "leaked Bearer [redacted]"
        ]
        assert not slow.done()
        auth.release.set()
        assert texts(await slow) == ["leaked Bearer [redacted]"]


async def test_no_headers_means_none_and_no_key_of_the_callers_surroundings_takes_their_place(
    shared_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-caller")

    class Nothing:
        async def headers_for_request(self, context: ModelRequestContext) -> Mapping[str, str]:
            return {}

    with running_server() as server:
        server.answer = lambda received: completion("done")
        async with isolate(bundled(asking, "Asking"), cache=Cache(shared_cache)) as env:
            dataset = await env.create_dataset("eval", tmp_path)
            await env.run_group(requests_for(dataset[0], 1, auth=Nothing(), base_url=server.url))
            (entry,) = env.audit
    (received,) = server.requests
    assert "sk-of-the-caller" not in f"{received.headers}"
    assert (entry.answered, entry.reason) == (True, "without any header")


async def test_two_thousand_requests_at_once_are_all_answered(probe: Any) -> None:
    counter = itertools.count()

    class Counting:
        async def headers_for_request(self, context: ModelRequestContext) -> Mapping[str, str]:
            await asyncio.sleep(0)
            return {"Authorization": f"Bearer counted-{next(counter)}", "X-Rollout": context.rollout_id}

    async with probe() as (env, dataset):
        groups = [
            run_one(env, dataset, "secret-text", count=100, auth=Counting(), prefix=f"g{number}")
            for number in range(20)
        ]
        results = await asyncio.gather(*groups)
    assert sum(len(outcomes) for outcomes in results) == 2000
    assert next(counter) == 2000


async def _failure(work: Any) -> str:
    with pytest.raises(Exception) as caught:
        await work
    return str(caught.value)
