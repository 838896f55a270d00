"""Workers live and die: whatever happens, every rollout has one outcome and nothing is left running."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from runner import (
    Limits,
    RecordEvent,
    RemoteError,
    RunnerError,
    UsageError,
    WorkerEvent,
    WorkerLostError,
    WorkerStartError,
    write_artifact,
)
from runner.provision import Cache
from tests.integration.environments import failing, probing, scripted
from tests.integration.isolation import alive, bundled, requests_for, run_one, texts, unconfined, until

pytestmark = pytest.mark.integration


class Probe:
    """A probing environment with what it told while it ran."""

    def __init__(self, env: Any, dataset: Any, events: list[Any]) -> None:
        self.env = env
        self.dataset = dataset
        self.events = events

    @property
    def pids(self) -> list[int]:
        return [event.pid for event in self.events if isinstance(event, WorkerEvent) and event.state == "ready"]

    @property
    def records(self) -> list[Any]:
        return [event.record for event in self.events if isinstance(event, RecordEvent)]

    async def run(self, act: str, **options: Any) -> Any:
        return await run_one(self.env, self.dataset, act, **options)


@pytest.fixture
def probe(shared_cache: Path, tmp_path: Path) -> Callable[..., Any]:
    @asynccontextmanager
    async def opened(**options: Any) -> AsyncIterator[Probe]:
        events: list[Any] = []
        bundle = bundled(probing, "Probing")
        async with unconfined(bundle, cache=Cache(shared_cache), on_event=events.append, **options) as env:
            yield Probe(env, await env.create_dataset("eval", tmp_path), events)

    return opened


async def test_a_killed_worker_settles_its_rollouts_by_name_and_the_next_group_gets_a_fresh_one(
    probe: Any, tmp_path: Path
) -> None:
    async with probe() as it:
        group = asyncio.ensure_future(it.run("touch-and-wait", count=3))
        await until(lambda: len(list(tmp_path.glob("running-*"))) == 3, what="three running rollouts")
        os.kill(it.pids[0], signal.SIGKILL)
        outcomes = await group
        (tmp_path / "go").touch()
        after = await it.run("touch-and-wait", count=2, prefix="after")
        assert it.env.deaths
        assert len(it.pids) == 2
    assert {outcome.termination_reason for outcome in outcomes.values()} == {"sandbox_error"}
    assert all("SIGKILL (-9)" in outcome.error and "3 rollouts" in outcome.error for outcome in outcomes.values())
    assert all("may be out of memory" in outcome.error for outcome in outcomes.values())
    assert {record.origin for record in it.records[:3]} == {"runner"}
    assert {outcome.termination_reason for outcome in after.values()} == {"finished"}
    assert not any(alive(pid) for pid in it.pids)


async def test_a_worker_that_exits_by_itself_is_named_by_its_code(probe: Any) -> None:
    async with probe() as it:
        outcomes = await it.run("exit", count=2)
        # known at once, not only when it is replaced
        assert len(it.env.deaths) == 1
        assert "exit code 3" in it.env.deaths[0]
    assert {outcome.termination_reason for outcome in outcomes.values()} == {"sandbox_error"}
    assert all("exit code 3" in outcome.error for outcome in outcomes.values())


async def test_what_a_dead_worker_had_printed_is_still_there_after_it_was_replaced(probe: Any) -> None:
    async with probe() as it:
        await it.run("raw")
        await it.run("exit")
        await it.run("ok")
        assert len(it.pids) == 2
        assert "raw bytes on descriptor 1" in it.env.output()["stdout"]


async def test_a_segfault_is_named_and_says_what_it_may_come_from(probe: Any) -> None:
    async with probe() as it:
        (outcome,) = (await it.run("segfault")).values()
    assert outcome.termination_reason == "sandbox_error"
    assert "SIGSEGV (-11)" in outcome.error
    assert "another Python" in outcome.error


async def test_only_the_rollouts_of_the_dead_worker_are_hit(probe: Any, tmp_path: Path) -> None:
    async with probe(workers=2) as it:
        waiting = asyncio.ensure_future(it.run("touch-and-wait", count=2))
        await until(lambda: len(list(tmp_path.glob("running-*"))) == 2, what="two running rollouts")
        dead = await it.run("exit", count=2)
        (tmp_path / "go").touch()
        lived = await waiting
    assert {outcome.termination_reason for outcome in dead.values()} == {"sandbox_error"}
    assert {outcome.termination_reason for outcome in lived.values()} == {"finished"}


async def test_workers_are_not_replaced_for_ever(probe: Any) -> None:
    async with probe(limits=Limits(restarts=1)) as it:
        for number in range(2):
            await it.run("exit", prefix=f"exit{number}")
        with pytest.raises(WorkerLostError, match="2 workers ended one after the other, the 1 restarts are used up"):
            await it.run("ok")


async def test_a_group_that_comes_back_earns_the_restarts_back(probe: Any) -> None:
    async with probe(limits=Limits(restarts=1)) as it:
        for number in range(4):
            await it.run("exit", prefix=f"exit{number}")
            assert texts(await it.run("ok", prefix=f"ok{number}")) == [None]
        assert len(it.env.deaths) == 4


async def test_restarts_that_fail_count_too(shared_cache: Path, tmp_path: Path) -> None:
    bundle = bundled(failing, "OnlyOnceAndExits", marker=str(tmp_path / "marker"))
    async with unconfined(bundle, cache=Cache(shared_cache), limits=Limits(restarts=2)) as env:
        dataset = await env.create_dataset("eval", tmp_path)
        (outcome,) = (await env.run_group(requests_for(dataset[0]))).values()
        assert outcome.termination_reason == "sandbox_error"
        for _ in range(2):
            with pytest.raises(RemoteError, match="FileExistsError"):
                await env.run_group(requests_for(dataset[0]))
        with pytest.raises(WorkerLostError, match="3 workers ended one after the other"):
            await env.run_group(requests_for(dataset[0]))


async def test_sys_exit_in_a_rollout_is_the_end_of_its_worker_with_that_code(probe: Any) -> None:
    async with probe() as it:
        (outcome,) = (await it.run("system-exit")).values()
        assert texts(await it.run("ok")) == [None]
    assert outcome.termination_reason == "sandbox_error"
    assert "exit code 5" in outcome.error


async def test_closing_lets_rollouts_in_flight_clean_up_and_calls_them_cancelled(probe: Any, tmp_path: Path) -> None:
    async with probe() as it:
        group = asyncio.ensure_future(it.run("clean-up", count=2))
        await until(lambda: len(list(tmp_path.glob("running-*"))) == 2, what="two running rollouts")
    outcomes = await group
    assert len(list(tmp_path.glob("released-*"))) == 2
    assert {outcome.termination_reason for outcome in outcomes.values()} == {"cancelled"}
    assert {record.origin for record in it.records} == {"runner"}


async def test_closing_while_a_worker_is_being_replaced_leaves_none_behind(shared_cache: Path, tmp_path: Path) -> None:
    bundle = bundled(failing, "SlowTheSecondTime", marker=str(tmp_path / "marker"))
    async with unconfined(bundle, cache=Cache(shared_cache)) as env:
        dataset = await env.create_dataset("eval", tmp_path)
        await env.run_group(requests_for(dataset[0]))
        replacing = asyncio.ensure_future(env.run_group(requests_for(dataset[0])))
        await until(lambda: (tmp_path / "marker.again").exists(), what="the second worker's constructor")
    with pytest.raises(WorkerLostError, match="was closed"):
        await replacing


def test_closing_in_another_event_loop_is_refused_and_leaves_it_open(shared_cache: Path) -> None:
    env = unconfined(bundled(scripted, "Scripted"), cache=Cache(shared_cache))
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(env.start())
        with pytest.raises(RunnerError, match="another event loop"):
            asyncio.run(env.aclose())
    finally:
        loop.run_until_complete(env.aclose())
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


async def test_a_rollout_out_of_time_is_cancelled_and_its_siblings_are_scored(probe: Any) -> None:
    async with probe(limits=Limits(rollout_s=0.5)) as it:
        outcomes = await it.run("sleep")
        ok = await it.run("ok")
        assert len(it.pids) == 1
    (outcome,) = outcomes.values()
    assert outcome.termination_reason == "rollout_timeout"
    assert "did not end within 0.5 s" in outcome.error
    assert it.records[0].origin == "runner"
    assert texts(ok) == [None]


@pytest.mark.parametrize("act", ["block", "swallow"])
async def test_a_rollout_that_cannot_be_cancelled_is_ended_with_its_worker_and_others_are_told_so(
    probe: Any, tmp_path: Path, act: str
) -> None:
    async with probe(limits=Limits(rollout_s=0.5, cancel_grace_s=0.5)) as it:
        began = time.monotonic()
        late = asyncio.ensure_future(it.run(act))
        await asyncio.sleep(0.25)
        sibling = asyncio.ensure_future(it.run("sleep", prefix="sibling"))
        (outcome,), (other,) = (await late).values(), (await sibling).values()
        assert time.monotonic() - began < 10
        assert texts(await it.run("ok")) == [None]
        assert len(it.pids) == 2
    assert outcome.termination_reason == "rollout_timeout"
    assert "killed" in outcome.error
    assert other.termination_reason in ("worker_lost", "rollout_timeout")


async def test_group_scoring_out_of_time_ends_the_group_only(probe: Any) -> None:
    async with probe(limits=Limits(scoring_s=0.5)) as it:
        outcomes = await it.run("score-forever", count=2)
        assert texts(await it.run("ok")) == [None]
        assert len(it.pids) == 1
    assert {outcome.termination_reason for outcome in outcomes.values()} == {"group_timeout"}
    assert {record.origin for record in it.records[:2]} == {"runner"}


async def test_cancelling_the_caller_cancels_the_rollouts_in_the_worker(probe: Any, tmp_path: Path) -> None:
    async with probe() as it:
        group = asyncio.ensure_future(it.run("touch-and-wait", count=2))
        await until(lambda: len(list(tmp_path.glob("running-*"))) == 2, what="two running rollouts")
        group.cancel()
        with pytest.raises(asyncio.CancelledError):
            await group
        assert len(list(tmp_path.glob("cancelled-*"))) == 2
        assert texts(await it.run("ok")) == [None]
        assert len(it.pids) == 1


async def test_two_hundred_groups_in_flight_on_one_worker_all_come_back(probe: Any) -> None:
    async with probe() as it:
        groups = await asyncio.gather(*(it.run("ok", count=8, prefix=f"g{number}") for number in range(200)))
    assert [list(outcomes) for outcomes in groups] == [[f"g{n}-{k}" for k in range(8)] for n in range(200)]


async def test_the_same_rollout_ids_may_be_in_flight_twice(probe: Any) -> None:
    async with probe() as it:
        twice = await asyncio.gather(it.run("print", count=2), it.run("print", count=2))
    assert [list(outcomes) for outcomes in twice] == [["print-0", "print-1"]] * 2
    assert all(len(record.logs) == 2 for record in it.records)


async def test_what_a_bundle_leaves_running_is_gone_with_the_worker(probe: Any) -> None:
    async with probe() as it:
        (pid,) = texts(await it.run("grandchild"))
        assert pid is not None
        assert alive(int(pid))
    assert not alive(int(pid))


async def test_a_killed_caller_leaves_nothing_of_the_tree(shared_cache: Path, tmp_path: Path) -> None:
    write_artifact(bundled(probing, "Probing"), tmp_path / "artifact")
    script = textwrap.dedent(
        """
        import asyncio, sys
        from pathlib import Path
        from benchmax.auth import StaticBearerAuth
        from benchmax.envs import RolloutRequest
        from runner import isolate
        from runner.provision import Cache

        async def main(artifact, cache, folder):
            def tell(event):
                if type(event).__name__ == "WorkerEvent":
                    print(event.pid, flush=True)
            async with isolate(artifact, cache=Cache(cache), sandbox="off", on_event=tell) as env:
                examples = {e.id: e for e in await env.create_dataset("eval", Path(folder))}
                for act in ("grandchild", "block"):
                    auth = StaticBearerAuth("t")
                    request = RolloutRequest(act + "-0", examples[act], "m", "http://x/v1", auth, "eval")
                    outcome = (await env.run_group([request]))[act + "-0"]
                    print(outcome.error, flush=True)

        asyncio.run(main(*sys.argv[1:]))
        """
    )
    command = [sys.executable, "-c", script, str(tmp_path / "artifact"), str(shared_cache), str(tmp_path)]
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    environ = {**os.environ, "TMPDIR": str(temporary)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ) as caller:
        assert caller.stdout is not None
        pids = [int(caller.stdout.readline()), int(caller.stdout.readline())]
        # its worker blocks its loop for ever now, so nothing in it can notice by itself on that loop
        await until(lambda: (tmp_path / "blocking-block-0").exists(), what="the blocking rollout")
        assert all(alive(pid) for pid in pids)
        caller.kill()
        await until(lambda: not any(alive(pid) for pid in pids), what="the end of the tree", patience_s=2.0)
    await until(lambda: not list(temporary.iterdir()), what="the end of its private folder")


async def test_a_constructor_that_raises_is_one_remote_error_with_its_traceback(shared_cache: Path) -> None:
    with pytest.raises(RemoteError, match="constructing the environment raised ValueError: no such colour") as caught:
        async with unconfined(bundled(failing, "RaisesInConstructor"), cache=Cache(shared_cache)):
            pass
    assert "in __init__" in caught.value.remote_traceback
    assert caught.value.remote_type == "ValueError"


async def test_a_constructor_that_ends_the_process_is_a_start_error_that_says_how(shared_cache: Path) -> None:
    with pytest.raises(WorkerStartError, match="exit code 7") as caught:
        async with unconfined(bundled(failing, "ExitsInConstructor"), cache=Cache(shared_cache)):
            pass
    assert "last words" in str(caught.value)


async def test_a_constructor_that_hangs_is_ended_by_the_start_up_limit(shared_cache: Path) -> None:
    with pytest.raises(WorkerStartError, match=r"not ready after 1\.5 s"):
        async with unconfined(
            bundled(failing, "HangsInConstructor"), cache=Cache(shared_cache), limits=Limits(startup_s=1.5)
        ):
            pass


async def test_a_start_that_fails_in_one_worker_or_is_cancelled_leaves_none_behind(
    shared_cache: Path, tmp_path: Path
) -> None:
    with pytest.raises(RemoteError, match="constructing the environment raised FileExistsError"):
        async with unconfined(
            bundled(failing, "OnlyOnce", marker=str(tmp_path / "marker")), cache=Cache(shared_cache), workers=2
        ):
            pass
    starting = asyncio.ensure_future(
        unconfined(bundled(failing, "HangsInConstructor"), cache=Cache(shared_cache)).__aenter__()
    )
    await asyncio.sleep(0.3)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting


async def test_an_aclose_that_raises_is_told_and_one_that_hangs_is_ended(shared_cache: Path) -> None:
    with pytest.raises(RemoteError, match="aclose raised RuntimeError: cannot close"):
        async with unconfined(bundled(failing, "RaisesInClose"), cache=Cache(shared_cache)):
            pass
    limits = Limits(shutdown_s=0.5)
    with pytest.raises(WorkerLostError, match=r"did not end within 0\.5 s; .* It was at .* in HangsInClose\.aclose\."):
        async with unconfined(bundled(failing, "HangsInClose"), cache=Cache(shared_cache), limits=limits):
            pass


async def test_a_dataset_that_changes_with_the_worker_is_an_error(shared_cache: Path, tmp_path: Path) -> None:
    async with unconfined(bundled(failing, "ChangingDataset"), cache=Cache(shared_cache)) as env:
        dataset = await env.create_dataset("eval", tmp_path)
        (died,) = (await env.run_group(requests_for(dataset[0]))).values()
        assert died.termination_reason == "sandbox_error"
        with pytest.raises(RunnerError, match="other examples in a fresh worker than before"):
            await env.run_group(requests_for(dataset[0]))


async def test_create_dataset_that_raises_or_hangs_is_one_error(shared_cache: Path, tmp_path: Path) -> None:
    limits = Limits(dataset_s=0.5, cancel_grace_s=0.5)
    async with unconfined(bundled(scripted, "Scripted"), cache=Cache(shared_cache)) as env:
        with pytest.raises(RemoteError, match=r"create_dataset\('eval'\) raised FileNotFoundError"):
            await env.create_dataset("eval", tmp_path)
    async with unconfined(bundled(failing, "HangsInDataset"), cache=Cache(shared_cache), limits=limits) as env:
        with pytest.raises(WorkerLostError, match=r"did not end within 0\.5 s"):
            await env.create_dataset("eval", tmp_path)


async def test_properties_need_a_started_environment(shared_cache: Path) -> None:
    env = unconfined(bundled(scripted, "Scripted"), cache=Cache(shared_cache))
    for look in (
        lambda: env.scorable_termination_reasons,
        lambda: env.requires_public_model_endpoint,
        env.validation_diagnostics,
    ):
        with pytest.raises(RunnerError, match="has not been started"):
            look()
    async with env:
        assert "finished" in env.scorable_termination_reasons
        assert env.requires_public_model_endpoint is False
        assert list(env.validation_diagnostics()) == []
    with pytest.raises(RunnerError, match="closed"):
        await env.create_dataset("eval", Path())
    await env.aclose()


async def test_what_the_environment_says_about_itself_arrives_with_the_ready_message(shared_cache: Path) -> None:
    async with unconfined(bundled(failing, "Outspoken"), cache=Cache(shared_cache)) as env:
        assert env.scorable_termination_reasons == frozenset({"finished", "nearly"})
        assert env.requires_public_model_endpoint is True
        (finding,) = env.validation_diagnostics()
    assert (finding.severity, finding.code, finding.location) == ("warning", "harness_output_cap", "agent.kwargs")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"sandbox": "bogus"}, "not known"),
        ({"network": "closed"}, "not known"),
        ({"credentials": "bogus"}, "not known"),
        ({"workers": 0}, "positive integer"),
    ],
)
def test_an_option_that_cannot_be_had_is_a_usage_error_at_once(options: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        unconfined(bundled(scripted, "Scripted"), **options)


async def test_fifty_first_calls_at_once_start_one_worker(shared_cache: Path, tmp_path: Path) -> None:
    events: list[Any] = []
    env = unconfined(bundled(probing, "Probing"), cache=Cache(shared_cache), on_event=events.append)
    try:
        datasets = await asyncio.gather(*(env.create_dataset("eval", tmp_path) for _ in range(50)))
    finally:
        await env.aclose()
    assert len({tuple(example.id for example in dataset) for dataset in datasets}) == 1
    assert sum(isinstance(event, WorkerEvent) for event in events) == 1
