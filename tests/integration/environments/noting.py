"""An environment that keeps notes in its data: each rollout adds a line to a file there, and says what is in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmax.envs import Dataset, Environment, Example, RolloutAttempt, RolloutRequest


class Noting(Environment[None, RolloutAttempt]):
    """Has one example, which is there if the data is."""

    def __init__(self) -> None:
        self.data = Path()

    async def create_dataset(self, split: Any, base_dir: Path, *, max_examples: int | None = None) -> Dataset[None]:
        self.data = base_dir
        return Dataset([Example(path.name, None) for path in sorted(base_dir.glob("notes.txt"))])

    async def run_rollout(self, request: RolloutRequest[None]) -> RolloutAttempt:
        notes = self.data / "notes.txt"
        with notes.open("a") as file:
            file.write("mine\n")
        return RolloutAttempt(
            rollout_id=request.rollout_id,
            termination_reason="finished",
            rewards={"lines": float(len(notes.read_text().split()))},
        )
