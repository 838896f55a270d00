"""The environment that is measured: one that does nothing, so that only the machinery counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmax.envs import Dataset, Environment, Example, RolloutAttempt, RolloutRequest


class NoOp(Environment[None, RolloutAttempt]):
    """Every rollout is finished at once."""

    async def create_dataset(self, split: Any, base_dir: Path, *, max_examples: int | None = None) -> Dataset[None]:
        """One example."""
        return Dataset([Example("only", None)])

    async def run_rollout(self, request: RolloutRequest[None]) -> RolloutAttempt:
        """Finish."""
        return RolloutAttempt(rollout_id=request.rollout_id, termination_reason="finished", rewards={"reward": 1.0})
