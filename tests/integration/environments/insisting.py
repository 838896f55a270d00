"""An environment whose rollouts ask their model the same as often as their examples say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmax.auth import create_async_openai_client
from benchmax.envs import Dataset, Environment, Example, RolloutAttempt, RolloutRequest

QUESTION: Any = {"role": "user", "content": "Which server is this?"}


class Insisting(Environment[int, RolloutAttempt]):
    """Each example is how often to ask; none of what was answered is told to the model."""

    async def create_dataset(self, split: Any, base_dir: Path, *, max_examples: int | None = None) -> Dataset[int]:
        return Dataset([Example(str(times), times) for times in range(3)])

    async def run_rollout(self, request: RolloutRequest[int]) -> RolloutAttempt:
        async with create_async_openai_client(
            model=request.model,
            base_url=request.base_url,
            auth=request.model_auth,
            request_id=request.rollout_id,
            max_retries=0,
        ) as client:
            for _ in range(request.example.payload):
                await client.chat.completions.create(model=request.model, messages=[QUESTION])
        return RolloutAttempt(rollout_id=request.rollout_id, termination_reason="finished", rewards={"x": 1.0})
