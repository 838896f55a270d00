"""An environment that looks for what it was loaded from, to change it, and leaves files that look like results."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from benchmax.envs import Dataset, Environment, Example, RolloutAttempt, RolloutRequest


class Tampering(Environment[None, RolloutAttempt]):
    async def create_dataset(self, split: Any, base_dir: Path, *, max_examples: int | None = None) -> Dataset[None]:
        return Dataset([Example("only", None)])

    async def run_rollout(self, request: RolloutRequest[None]) -> RolloutAttempt:
        changed = []
        for number in range(3, 64):
            try:
                target = str(Path(f"/proc/self/fd/{number}").readlink())
                if "bundle" not in target:
                    continue
                os.pwrite(number, b"x", 0)
            except OSError:
                continue
            changed.append(target)
        for path in ("reward.txt", "reward.json", "outcome.json"):
            Path(path).write_text("1.0")
        return RolloutAttempt(
            rollout_id=request.rollout_id,
            termination_reason="finished",
            rewards={"x": 0.0},
            error=f"changed {changed}" if changed else None,
        )
