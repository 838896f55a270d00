"""An environment whose datasets are told apart by split and folder, and that can go wrong while one is made again."""

from __future__ import annotations

import asyncio
import gc
import os
import time
import weakref
from pathlib import Path
from typing import Any, ClassVar

from benchmax.envs import Dataset, Environment, Example, RolloutAttempt, RolloutRequest


class Payload:
    """Something that can be seen to go."""

    alive: ClassVar[weakref.WeakSet[Payload]] = weakref.WeakSet()

    def __init__(self, text: str) -> None:
        self.text = text
        Payload.alive.add(self)


class Listing(Environment[Payload, RolloutAttempt]):
    """Rollouts say in `error` what their payload is.

    Args:
        again: What happens when a dataset is made by another worker than the first: `exit`, `hang`, `raise` or nothing.
    """

    def __init__(self, folder: str, again: str = "") -> None:
        self.first = Path(folder, "first")
        self.again = again

    async def create_dataset(self, split: Any, base_dir: Path, *, max_examples: int | None = None) -> Dataset[Payload]:
        if not self.first.exists():
            self.first.write_text(str(os.getpid()))
        elif self.first.read_text() != str(os.getpid()):
            match self.again:
                case "exit":
                    os._exit(9)
                case "hang":
                    time.sleep(3600)
                case "raise":
                    raise RuntimeError("cannot be made again")
                case _:
                    pass
        ids = [f"{split}-{base_dir.name}-{number}" for number in range(5)]
        return Dataset([Example(example_id, Payload(example_id)) for example_id in ids[:max_examples]])

    async def run_rollout(self, request: RolloutRequest[Payload]) -> RolloutAttempt:
        if request.model == "exit":
            os._exit(1)
        if request.model == "wait":
            Path(self.first.parent, f"waiting-{request.rollout_id}-{os.getpid()}").touch()
            while not Path(self.first.parent, "go").exists():
                await asyncio.sleep(0.01)
        if request.model == "count":
            gc.collect()
            text = str(len(Payload.alive))
        else:
            text = request.example.payload.text
        return RolloutAttempt(
            rollout_id=request.rollout_id, termination_reason="finished", rewards={"x": 1.0}, error=text
        )


class LongIds(Listing):
    """One id is what no message can hold as it is."""

    def __init__(self, folder: str, kind: str) -> None:
        super().__init__(folder)
        self.kind = kind

    async def create_dataset(self, split: Any, base_dir: Path, *, max_examples: int | None = None) -> Dataset[Payload]:
        odd = {"longest": "x" * 4096, "too long": "x" * 4097, "surrogate": "\udcff"}[self.kind]
        return Dataset([Example("fine", Payload("fine")), Example(odd, Payload(odd))])
