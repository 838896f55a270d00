"""An environment that does what a script in its dataset folder says: every way a rollout or a group can end."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmax.envs import Dataset, Environment, Example, RolloutAttempt, RolloutFailure, RolloutRequest

ERRORS: dict[str, type[Exception]] = {"ValueError": ValueError, "KeyError": KeyError, "RuntimeError": RuntimeError}


class Scripted(Environment[dict[str, Any], RolloutAttempt]):
    """`script.json`: `{"examples": [{"id", "rollouts": [step, ...], "group": step}, ...]}`."""

    def __init__(self) -> None:
        self.group: dict[str, Any] = {}
        self.index: dict[str, int] = {}

    async def create_dataset(
        self, split: Any, base_dir: Path, *, max_examples: int | None = None
    ) -> Dataset[dict[str, Any]]:
        rows = json.loads((Path(base_dir) / "script.json").read_text())["examples"]
        return Dataset([Example(row["id"], row) for row in rows[:max_examples]])

    async def run_rollout(self, request: RolloutRequest[dict[str, Any]]) -> RolloutAttempt:
        payload = request.example.payload
        number = int(request.rollout_id.rpartition("-")[2])
        step = payload["rollouts"][number]
        self.group[request.rollout_id] = payload["group"]
        self.index[request.rollout_id] = number
        match step["do"]:
            case "attempt":
                return RolloutAttempt(
                    rollout_id=request.rollout_id,
                    termination_reason=step["reason"],
                    rewards=step["rewards"],
                    error=step["error"],
                )
            case "fail":
                raise RolloutFailure(step["reason"], step["message"])
            case "raise":
                raise ERRORS[step["type"]](step["message"])
            case "wrong id":
                return RolloutAttempt(rollout_id="somebody-else", termination_reason="finished", rewards={"x": 1.0})
            case _:
                return None  # type: ignore[return-value]  # what an author may get wrong

    async def compute_group_rewards(
        self, rollouts: Sequence[RolloutAttempt]
    ) -> Mapping[str, Mapping[str, float]] | None:
        step = self.group[rollouts[0].rollout_id]
        match step["do"]:
            case "none":
                return None
            case "rank":
                return {r.rollout_id: {"rank": self.index[r.rollout_id] / len(rollouts)} for r in rollouts}
            case "same key":
                return {r.rollout_id: dict.fromkeys(r.rewards or {"x": 1.0}, 0.5) for r in rollouts}
            case "forget one":
                return {r.rollout_id: {"rank": 1.0} for r in rollouts[1:]}
            case "fail":
                raise RolloutFailure(step["reason"], step["message"])
            case "raise":
                raise ERRORS[step["type"]](step["message"])
            case _:
                return {r.rollout_id: {"rank": float("nan")} for r in rollouts}
