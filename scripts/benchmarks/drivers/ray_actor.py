"""One asynchronous Ray actor."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import ray

from scripts.benchmarks import subject
from scripts.benchmarks.drivers.here import groups_of
from scripts.benchmarks.drivers.load import RunGroup, drive


class Worker:
    """The environment in a process of its own."""

    async def run(self, ids: list[str]) -> object:
        """Run one group; outcomes come back as plain values."""
        if not hasattr(self, "groups"):
            self.groups = await groups_of(subject.chosen())
        outcomes: Any = await self.groups(ids)
        return {i: (dict(o.rewards), o.termination_reason, o.error) for i, o in outcomes.items()}


@asynccontextmanager
async def actor() -> AsyncIterator[RunGroup]:
    """The actor."""
    ray.init(include_dashboard=False, log_to_driver=False, logging_level="error")
    worker = ray.remote(Worker).remote()

    async def run_group(ids: list[str]) -> object:
        return await worker.run.remote(ids)

    try:
        yield run_group
    finally:
        ray.shutdown()


if __name__ == "__main__":
    drive(actor)
