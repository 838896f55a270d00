"""Trials of an isolated worker: each ends by its own fault, and its siblings do not feel it."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from benchmax.envs import Dataset, Example, RolloutOutcome
from runner import isolate
from runner.isolated import IsolatedEnvironment
from runner.provision import Cache
from runner.record import Event, WorkerEvent
from tests.harbor.isolated.harbor_lab import CONFIG, ENVIRONMENTS, RELEASES, hanging, make_task, packed, rollout_prefix
from tests.integration.isolation import requests_for, until

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(400)]

TARGET = f"{ENVIRONMENTS / 'acting.py'}:Acting"

REFUSED = {
    "needs-a-build": (
        {"environment/Dockerfile": "FROM debian:12\nRUN apt-get install -y cowsay\n"},
        "Dockerfile:2: RUN apt-get install -y cowsay",
    ),
    "other-image": ({"environment/Dockerfile": "FROM node:22\n"}, "the image node:22 is none of"),
    "copies-nothing": ({"environment/Dockerfile": "FROM debian:12\nCOPY none.txt /app/\n"}, "copies none.txt"),
    "asks-for-less-than-nothing": ({"task.toml": f"{CONFIG.format(seconds=90)}memory_mb = -1\n"}, "memory_bytes is -"),
    "several-containers": ({"environment/docker-compose.yaml": "services: {}\n"}, "docker-compose.yaml"),
}


async def example_of(env: IsolatedEnvironment, folder: Path) -> Example[object]:
    dataset: Dataset[object] = await env.create_dataset("eval", folder)
    (example,) = dataset
    return example


async def acted(env: IsolatedEnvironment, example: Example[object], *acts: str) -> dict[str, RolloutOutcome]:
    """Run one group with a sibling for each act; outcomes by act."""
    requests = [request for act in acts for request in requests_for(example, prefix=rollout_prefix(act))]
    outcomes = await env.run_group(requests)
    return dict(zip(acts, outcomes.values(), strict=True))


def shown(outcomes: dict[str, RolloutOutcome]) -> dict[str, tuple[str, dict[str, float]]]:
    return {act: (outcome.termination_reason, dict(outcome.rewards)) for act, outcome in outcomes.items()}


@pytest.mark.parametrize("release", RELEASES)
async def test_each_trial_ends_by_its_own_fault_and_its_siblings_unharmed(
    release: str, shared_cache: Path, tmp_path: Path
) -> None:
    cache = Cache(shared_cache)
    artifact = await packed(TARGET, release, tmp_path / "artifact", cache)
    # what is more than there is lowers nothing
    greedy = {"task.toml": f"{CONFIG.format(seconds=90)}cpus = {10**15}\nmemory_mb = {10**15}\nstorage_mb = {10**15}\n"}
    make_task(tmp_path / "patient" / "tasks" / "patient", files=greedy)
    make_task(tmp_path / "hasty" / "tasks" / "hasty", seconds=6)
    for name, (files, _) in REFUSED.items():
        make_task(tmp_path / name / "tasks" / name, files=files)
    async with isolate(artifact, cache=cache, sandbox="namespaces") as env:
        patient = await example_of(env, tmp_path / "patient")
        # what is loaded for the first trial takes a while
        await acted(env, patient, "idle")
        outcomes = await acted(env, patient, "right", "wrong", "idle", "checks", "raises", "mute", "ends")
        assert outcomes["checks"].error is None
        assert shown(outcomes) == {
            "right": ("finished", {"reward": 1.0, "style": 0.5}),
            "wrong": ("finished", {"reward": 0.0, "style": 0.25}),
            "idle": ("finished", {"reward": 0.0, "style": 0.25}),
            "checks": ("finished", {"reward": 1.0, "style": 0.5}),
            "raises": ("harness_error", {}),
            "mute": ("harness_error", {}),
            "ends": ("harness_error", {}),
        }
        assert outcomes["raises"].error == "LookupError: the agent gave up"
        assert str(outcomes["mute"].error).startswith("RewardFileNotFoundError: ")
        assert str(outcomes["ends"].error).startswith("SandboxEndedError: ")

        outcomes = await acted(env, await example_of(env, tmp_path / "hasty"), "hang", "slow", "idle")
        assert shown(outcomes) == {
            "hang": ("harness_timeout", {}),
            "slow": ("verifier_timeout", {}),
            "idle": ("finished", {"reward": 0.0, "style": 0.25}),
        }
        assert not hanging()

        for name, (_, text) in REFUSED.items():
            outcomes = await acted(env, await example_of(env, tmp_path / name), "right", "idle")
            assert shown(outcomes) == {"right": ("sandbox_error", {}), "idle": ("sandbox_error", {})}, name
            for outcome in outcomes.values():
                assert str(outcome.error).startswith("SandboxBuildFailedError: ")
                assert text in str(outcome.error)


async def test_a_worker_that_is_killed_in_the_middle_of_trials_leaves_nothing_of_them(
    shared_cache: Path, tmp_path: Path
) -> None:
    cache = Cache(shared_cache)
    artifact = await packed(TARGET, "newest", tmp_path / "artifact", cache)
    make_task(tmp_path / "data" / "tasks" / "task")
    workers: list[int] = []

    def on_event(event: Event) -> None:
        if isinstance(event, WorkerEvent) and event.state == "ready":
            workers.append(event.pid)

    async with isolate(artifact, cache=cache, sandbox="namespaces", on_event=on_event) as env:
        example = await example_of(env, tmp_path / "data")
        group = asyncio.ensure_future(acted(env, example, "hang", "idle"))
        await until(lambda: len(hanging()) == 1 or group.done(), what="the trial to hang", patience_s=120)
        os.kill(workers[0], signal.SIGKILL)
        outcomes = await group
        assert {outcome.termination_reason for outcome in outcomes.values()} == {"sandbox_error"}
        await until(lambda: not hanging(), what="the sandbox to end with its worker")
        # and the environment goes on with another worker
        assert shown(await acted(env, example, "right"))["right"] == ("finished", {"reward": 1.0, "style": 0.5})
