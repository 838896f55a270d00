"""An environment whose rollouts ask for headers all the time and give large outcomes, or do not give way at all."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmax.auth import ModelRequestContext
from benchmax.envs import Dataset, Environment, Example, RolloutAttempt, RolloutRequest

ACTS = ["large", "block", "quick"]


@dataclass(frozen=True)
class WithMessages(RolloutAttempt):
    messages: Sequence[Any] = ()


class Exchanging(Environment[str, WithMessages]):
    def __init__(self) -> None:
        self.base_dir = Path()

    async def create_dataset(self, split: Any, base_dir: Path, *, max_examples: int | None = None) -> Dataset[str]:
        self.base_dir = Path(base_dir)
        return Dataset([Example(act, act) for act in ACTS])

    async def run_rollout(self, request: RolloutRequest[str]) -> WithMessages:
        act = request.example.payload
        rewards: dict[str, float] = {"x": 1.0}
        messages: list[Any] = []
        error = None
        if act == "block":
            (self.base_dir / "blocking").touch()
            time.sleep(3600)
        if act == "large":
            context = ModelRequestContext(request.base_url, request.model, request.rollout_id)
            found = [sorted(await request.model_auth.headers_for_request(context)) for _ in range(3)]
            error = f"{found[-1]}".ljust(16_000, ".")
            messages = [{"role": "user", "content": "m" * 200_000}]
            rewards = {f"component-{number}": 0.5 for number in range(1000)}
        return WithMessages(
            rollout_id=request.rollout_id,
            termination_reason="finished",
            rewards=rewards,
            error=error,
            messages=messages,
        )
