"""The isolated environment without a worker: what it says before it starts, and that it always closes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from benchmax.bundle import Bundle, BundleMetadata
from benchmax.envs.shared_types import Example, RolloutRequest
from runner import RunnerError, SandboxUnavailableError, UsageError, isolate
from runner.handle import DatasetToken, ExampleHandle
from runner.isolated import IsolatedEnvironment
from runner.provision import Cache
from runner.record import PhaseEvent


def an_environment(tmp_path: Path, **options: Any) -> IsolatedEnvironment:
    metadata = BundleMetadata(
        pip_dependencies=(), python_version="3.12", benchmax_version="0.2.5", env_class_source=None
    )
    return isolate(Bundle(b"pickle", metadata), cache=Cache(tmp_path), **options)


class SlowPool:
    """Stands for workers that take a while to close."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.closed = 0

    async def close(self) -> None:
        await self.go_on.wait()
        self.closed += 1


async def test_closing_completes_though_whoever_closes_is_cancelled(tmp_path: Path) -> None:
    env, pool = an_environment(tmp_path), SlowPool()
    env._pool = pool  # type: ignore[assignment]  # the part of it that matters
    first = asyncio.ensure_future(env.aclose())
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    second = asyncio.ensure_future(env.aclose())
    await asyncio.sleep(0)
    assert not second.done()
    pool.go_on.set()
    await second
    await env.aclose()
    assert pool.closed == 1


async def test_a_listener_that_raises_is_reported_and_breaks_nothing(tmp_path: Path) -> None:
    def listener(_: object) -> None:
        raise RuntimeError("listener is broken")

    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    env = an_environment(tmp_path, on_event=listener)
    env._emit(PhaseEvent(phase="x", message="y", elapsed_s=0.0))
    (context,) = reported
    assert context["message"] == "on_event raised"
    assert str(context["exception"]) == "listener is broken"


async def test_before_it_is_started_it_says_nothing_about_itself(tmp_path: Path) -> None:
    env = an_environment(tmp_path)
    for ask in (
        lambda: env.scorable_termination_reasons,
        lambda: env.requires_public_model_endpoint,
        lambda: env.validation_diagnostics(),
        lambda: env.environment_name,
        lambda: env.venv,
    ):
        with pytest.raises(RunnerError, match="has not been started"):
            ask()
    assert (env.audit, env.deaths, env.output()) == ((), (), {"stdout": "", "stderr": ""})


async def test_after_it_is_closed_it_cannot_be_used(tmp_path: Path) -> None:
    env = an_environment(tmp_path)
    await env.aclose()
    await env.aclose()
    with pytest.raises(RunnerError, match="is closed"):
        await env.start()


@pytest.mark.parametrize("payload", [None, "text", ExampleHandle(DatasetToken(object(), 0, lambda _: None), 0)])
async def test_an_example_from_elsewhere_is_refused_before_anything_starts(tmp_path: Path, payload: object) -> None:
    class Never:
        async def headers_for_request(self, context: Any) -> dict[str, str]:
            return {}

    env = an_environment(tmp_path)
    request: Any = RolloutRequest("r", Example("e", payload), "m", "http://m", Never(), "eval")
    with pytest.raises(ValueError, match="not from this environment's dataset"):
        await env.run_group([request])
    with pytest.raises(ValueError, match="not from this environment's dataset"):
        await env.run_rollout(request)
    assert env._starting is None


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        ({"workers": 0}, UsageError, "workers must be a positive integer, got 0"),
        ({"workers": True}, UsageError, "workers must be a positive integer, got True"),
        ({"sandbox": "bogus"}, UsageError, "not known. Use one of: auto, off, landlock, namespaces"),
        ({"network": "closed"}, UsageError, "not known. Use one of: open, model-only, none"),
        ({"network": "none", "sandbox": "off"}, SandboxUnavailableError, "the sandbox level off leaves"),
        ({"allow": ["db.example:5432"]}, UsageError, "allow has no meaning with the network mode open"),
        ({"secrets": {"PATH": "/"}}, UsageError, "the secret PATH would replace"),
        ({"credentials": "none"}, UsageError, "not known. Use one of: headers, gateway"),
        (
            {"credentials": "gateway", "network": "none"},
            UsageError,
            "the gateway could not be reached",
        ),
        ({"credentials": "headers", "exchange": object()}, UsageError, "exchange has no meaning with credentials hea"),
        ({"exchange": object()}, UsageError, "exchange has no meaning with credentials headers"),
        ({"hash_seed": -1}, UsageError, "hash_seed must be an integer from 0 to 4294967295, got -1"),
        ({"hash_seed": 1 << 32}, UsageError, "hash_seed must be an integer"),
        ({"hash_seed": "random"}, UsageError, "hash_seed must be an integer"),
        ({"auth": {"judge": "token"}}, TypeError, "must be a ModelAuth or a Binding"),
    ],
)
def test_options_that_cannot_be_meant_are_refused_at_once(
    tmp_path: Path, options: dict[str, Any], kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=text):
        an_environment(tmp_path, **options)


async def test_groups_cannot_be_scored_across_processes(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be called across processes"):
        await an_environment(tmp_path).compute_group_rewards([])
