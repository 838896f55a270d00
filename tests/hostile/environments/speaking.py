"""An environment that writes prepared bytes to its worker's own descriptors: those that the example names."""

from __future__ import annotations

import os
import select
from pathlib import Path
from typing import Any

from benchmax.envs import Dataset, Environment, Example, RolloutAttempt, RolloutRequest

DESCRIPTORS = {".work": 3, ".auth": 4}


def say(descriptor: int, data: bytes) -> None:
    """Write all of it, waiting where the worker's own loop would."""
    while data:
        select.select([], [descriptor], [])
        data = data[os.write(descriptor, data) :]


class Speaking(Environment[Path, RolloutAttempt]):
    """The folder holds a file per example, called `<name>.work` or `<name>.auth`: what is said there during a rollout.

    A file `dataset.work` is said, over and over if it is told so, while the dataset is being made.
    """

    def __init__(self, endless: bool = False) -> None:
        self.endless = endless

    async def create_dataset(self, split: Any, base_dir: Path, *, max_examples: int | None = None) -> Dataset[Path]:
        spoken = base_dir / "dataset.work"
        if spoken.exists():
            data = spoken.read_bytes()
            say(3, data)
            while self.endless:
                say(3, data)
        return Dataset([Example(path.stem, path) for path in sorted(base_dir.iterdir())])

    async def run_rollout(self, request: RolloutRequest[Path]) -> RolloutAttempt:
        path = request.example.payload
        if path.suffix in DESCRIPTORS:
            say(DESCRIPTORS[path.suffix], path.read_bytes())
        return RolloutAttempt(rollout_id=request.rollout_id, termination_reason="finished", rewards={"x": 1.0})
