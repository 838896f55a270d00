"""Rollouts that wait for each other, and rollouts that end at once; datasets are how the test says what is next."""

from __future__ import annotations

import asyncio
import gc
import time
from pathlib import Path
from typing import Any

from benchmax.envs import Dataset, Environment, Example, RolloutAttempt, RolloutRequest

ALL_HERE = 2
RELEASE = 3
GARBAGE = 4
"""Asked for by the number of examples: wait until all rollouts have come, let them go, count what was left behind."""


class Gathering(Environment[str, RolloutAttempt]):
    """Rollouts of the example `wait` go when `count` of them have come and they are released.

    Those of `block` hold up the whole worker until there is a file `go` in the data folder.
    """

    def __init__(self, count: int = 0) -> None:
        self.count = count
        self.here = 0
        self.all_here = asyncio.Event()
        self.release = asyncio.Event()
        self.folder = Path()

    async def create_dataset(self, split: Any, base_dir: Path, *, max_examples: int | None = None) -> Dataset[str]:
        self.folder = base_dir
        if max_examples == ALL_HERE:
            await self.all_here.wait()
        if max_examples == RELEASE:
            self.release.set()
        names = ["pass", "wait", "block"]
        if max_examples == GARBAGE:
            names = [f"{gc.collect()} objects"]
        return Dataset([Example(name, name) for name in names])

    async def run_rollout(self, request: RolloutRequest[str]) -> RolloutAttempt:
        if request.example.payload == "wait":
            self.here += 1
            if self.here == self.count:
                self.all_here.set()
            await self.release.wait()
        if request.example.payload == "block":
            while not (self.folder / "go").exists():
                time.sleep(0.01)
        return RolloutAttempt(rollout_id=request.rollout_id, termination_reason="finished", rewards={"x": 1.0})
