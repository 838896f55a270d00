"""What the process pools share: one environment per process, groups in and plain values out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmax.auth import StaticBearerAuth
from benchmax.envs import RolloutRequest
from scripts.benchmarks import subject
from scripts.benchmarks.drivers.load import BASE_URL, RunGroup

Outcomes = dict[str, tuple[dict[str, float], str, str | None]]

_state: dict[str, Any] = {}


def start() -> None:
    """Make the environment, once per process."""
    loop = asyncio.new_event_loop()
    env = subject.chosen()
    dataset = loop.run_until_complete(env.create_dataset("eval", Path()))
    _state.update(loop=loop, env=env, example=dataset[0])


def run(ids: list[str]) -> Outcomes:
    """Run one group; outcomes come back as plain values."""
    if not _state:
        start()
    auth = StaticBearerAuth("unused")
    requests = [RolloutRequest(i, _state["example"], "m", BASE_URL, auth) for i in ids]
    outcomes = _state["loop"].run_until_complete(_state["env"].run_group(requests))
    return {i: (dict(outcome.rewards), outcome.termination_reason, outcome.error) for i, outcome in outcomes.items()}


def through(submit: Callable[[Callable[[list[str]], Outcomes], list[str]], Any]) -> RunGroup:
    """Run groups through an executor's `submit`."""

    async def run_group(ids: list[str]) -> object:
        return await asyncio.wrap_future(submit(run, ids))

    return run_group
