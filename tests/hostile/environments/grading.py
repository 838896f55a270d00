"""An environment whose scoring goes wrong in every way there is; an example's id says how."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmax.envs import Dataset, Environment, Example, RolloutAttempt, RolloutFailure, RolloutRequest

ACTS = [
    "fine", "scorer raises", "scorer fails", "scorer hangs", "scorer gives nothing", "scorer gives NaN",
    "scorer gives text", "scorer gives a text as reward", "scorer forgets one", "scorer invents one",
    "model does not answer", "out of memory", "every second fails", "the middle fails", "all fail", "the middle raises",
]  # fmt: skip


class Grading(Environment[str, RolloutAttempt]):
    """With `rows`, an example for each number; those in `odd` behave like one of the acts."""

    def __init__(self, rows: int = 0, odd: dict[int, str] | None = None) -> None:
        self.rows = rows
        self.odd = odd or {}
        self.scored: dict[str, list[str]] = {}

    async def create_dataset(self, split: Any, base_dir: Path, *, max_examples: int | None = None) -> Dataset[str]:
        if self.rows:
            return Dataset([Example(f"{number:04d}", self.odd.get(number, "fine")) for number in range(self.rows)])
        return Dataset([Example(act, act) for act in ACTS])

    async def run_rollout(self, request: RolloutRequest[str]) -> RolloutAttempt:
        act = request.example.payload
        number = int(request.rollout_id.rpartition("-")[2])
        # out of order, so that the order of results is not the order of ends
        await asyncio.sleep(0.001 * (5 - number % 5))
        if act == "out of memory":
            os.kill(os.getpid(), 9)
        if act == "model does not answer":
            raise RolloutFailure("model_error", "the model does not answer")
        if (act == "every second fails" and number % 2) or (act == "the middle fails" and number in (1, 2)):
            raise RolloutFailure("tool_error", f"rollout {number} failed")
        if act == "all fail":
            raise RolloutFailure("tool_error", "as all do")
        if act == "the middle raises" and number == 1:
            raise KeyError("no such row")
        return RolloutAttempt(rollout_id=request.rollout_id, termination_reason="finished", error=None)

    async def compute_group_rewards(self, rollouts: Sequence[RolloutAttempt]) -> Any:
        ids = [rollout.rollout_id for rollout in rollouts]
        act = self._act(ids[0])
        good: dict[str, Mapping[str, Any]] = {
            rollout_id: {"rank": float(place)} for place, rollout_id in enumerate(ids)
        }
        match act:
            case "scorer raises":
                raise KeyError("no such row")
            case "scorer fails":
                raise RolloutFailure("judge_error", "the judge answers 500")
            case "scorer hangs":
                return await asyncio.sleep(3600)
            case "scorer gives nothing":
                return None
            case "scorer gives NaN":
                return {**good, ids[-1]: {"rank": float("nan")}}
            case "scorer gives text":
                return "0.5"
            case "scorer gives a text as reward":
                return {**good, ids[-1]: {"rank": "0.5"}}
            case "scorer forgets one":
                return dict(list(good.items())[1:])
            case "scorer invents one":
                return {**good, "somebody else": {"rank": 1.0}}
            case _:
                return good

    def _act(self, rollout_id: str) -> str:
        """The ids of the tests begin with the act, or with the row's number."""
        name = rollout_id.rpartition("-")[0]
        return self.odd.get(int(name.partition("-")[0]), "fine") if self.rows else name
