"""An environment whose rollouts take more than they may, as their example says."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from benchmax.envs import Dataset, Environment, Example, RolloutAttempt, RolloutRequest


class Greedy(Environment[None, RolloutAttempt]):
    """Its examples are named by what they take."""

    async def create_dataset(self, split: Any, base_dir: Path, *, max_examples: int | None = None) -> Dataset[None]:
        return Dataset([Example(name, None) for name in ("disk", "processes", "nothing")])

    async def run_rollout(self, request: RolloutRequest[None]) -> RolloutAttempt:
        getattr(self, request.example.id)()
        return RolloutAttempt(rollout_id=request.rollout_id, termination_reason="finished", rewards={"x": 1.0})

    def disk(self) -> None:
        """Write files until there is no room, or somebody ends this."""
        for number in range(1000):
            Path(str(number)).write_bytes(bytes(2**20))
            time.sleep(0.005)

    def processes(self) -> None:
        """Start processes until one cannot be, and end as code does that does not look."""
        try:
            while True:
                if os.fork() == 0:
                    time.sleep(1000)
        except OSError:
            os._exit(9)

    def nothing(self) -> None:
        """Take nothing."""
