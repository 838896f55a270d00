"""An environment whose dataset has no end, or ids that are too long together."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmax.envs import Dataset, Environment, Example, RolloutAttempt, RolloutRequest


class Without(Dataset[None]):
    """Longer than it says."""

    def __init__(self, size: int) -> None:
        super().__init__([])
        self.size = size

    def __iter__(self) -> Iterator[Example[None]]:
        number = 0
        while True:
            yield Example(f"{number:0{self.size}d}", None)
            number += 1


class Endless(Environment[None, RolloutAttempt]):
    def __init__(self, size: int) -> None:
        self.size = size

    async def create_dataset(self, split: Any, base_dir: Path, *, max_examples: int | None = None) -> Dataset[None]:
        if max_examples is not None:
            return Dataset([Example(f"{number:0{self.size}d}", None) for number in range(max_examples)])
        return Without(self.size)

    async def run_rollout(self, request: RolloutRequest[None]) -> RolloutAttempt:
        return RolloutAttempt(rollout_id=request.rollout_id, termination_reason="finished", rewards={"x": 1.0})
