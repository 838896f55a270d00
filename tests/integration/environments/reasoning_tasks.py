"""An environment whose tasks and scores are reasoning-gym's, one of whose dependencies is written in C."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmax.envs import Dataset, Environment, Example, RolloutAttempt, RolloutRequest


class ReasoningTasks(Environment[dict[str, Any], RolloutAttempt]):
    """Rollout 0 of a group knows the answer; the others say something else."""

    def __init__(self, tasks: Sequence[str], per_task: int = 2) -> None:
        self.tasks = list(tasks)
        self.per_task = per_task
        self.sources: dict[str, Any] = {}

    async def create_dataset(
        self, split: Any, base_dir: Path, *, max_examples: int | None = None
    ) -> Dataset[dict[str, Any]]:
        # installed where the bundle runs, not where it is made
        gym = import_module("reasoning_gym")
        examples = []
        for task in self.tasks:
            self.sources[task] = gym.create_dataset(task, size=self.per_task, seed=7)
            for number, entry in enumerate(self.sources[task]):
                examples.append(Example(f"{task}-{number}", {"task": task, "entry": entry}))
        return Dataset(examples[:max_examples])

    async def run_rollout(self, request: RolloutRequest[dict[str, Any]]) -> RolloutAttempt:
        task, entry = request.example.payload["task"], request.example.payload["entry"]
        answer = entry["answer"] if request.rollout_id.endswith("-0") else "nothing of the kind"
        score = float(self.sources[task].score_answer(answer=answer, entry=entry))
        # the solver in C answers for itself
        solution = import_module("pycosat").solve([[1, -2], [2]])
        return RolloutAttempt(
            rollout_id=request.rollout_id,
            termination_reason="finished",
            rewards={"score": score, "asked": float(bool(entry["question"])), "solved": float(solution == [1, 2])},
        )
