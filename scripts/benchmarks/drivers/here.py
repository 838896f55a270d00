"""`run_group` in this process: the upper bound. With any release of benchmax that the interpreter has."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from benchmax.auth import StaticBearerAuth
from benchmax.envs import Environment, RolloutRequest
from scripts.benchmarks import subject
from scripts.benchmarks.drivers.load import BASE_URL, RunGroup, drive

AUTH = StaticBearerAuth("unused")


async def groups_of(env: Environment[Any, Any]) -> RunGroup:
    """Make groups for an environment's only example."""
    dataset = await env.create_dataset("eval", Path())

    async def run_group(ids: list[str]) -> object:
        return await env.run_group([RolloutRequest(i, dataset[0], "m", BASE_URL, AUTH) for i in ids])

    return run_group


@asynccontextmanager
async def here() -> AsyncIterator[RunGroup]:
    """The environment itself."""
    yield await groups_of(subject.chosen())


if __name__ == "__main__":
    drive(here)
