"""The environments that are measured: they do next to nothing, so that only the machinery counts."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmax.auth import ModelRequestContext
from benchmax.envs import Dataset, Environment, Example, RewardMap, RolloutAttempt, RolloutRequest


class NoOp(Environment[None, RolloutAttempt]):
    """Every rollout is finished at once."""

    async def create_dataset(self, split: Any, base_dir: Path, *, max_examples: int | None = None) -> Dataset[None]:
        """One example."""
        return Dataset([Example("only", None)])

    async def run_rollout(self, request: RolloutRequest[None]) -> RolloutAttempt:
        """Finish."""
        return RolloutAttempt(rollout_id=request.rollout_id, termination_reason="finished", rewards={"reward": 1.0})


class Asking(NoOp):
    """Every rollout asks for the headers of one model request."""

    async def run_rollout(self, request: RolloutRequest[None]) -> RolloutAttempt:
        """Ask, and finish."""
        context = ModelRequestContext(request.base_url, request.model, request.rollout_id)
        await request.model_auth.headers_for_request(context)
        return await super().run_rollout(request)


class AskingInTurn(NoOp):
    """A rollout that asks over and over, and is rewarded with the seconds that one answer takes."""

    async def run_rollout(self, request: RolloutRequest[None]) -> RolloutAttempt:
        """Ask, one request at a time."""
        context = ModelRequestContext(request.base_url, request.model, request.rollout_id)
        count = int(request.model)
        began = time.perf_counter()
        for _ in range(count):
            await request.model_auth.headers_for_request(context)
        seconds = (time.perf_counter() - began) / count
        return RolloutAttempt(
            rollout_id=request.rollout_id, termination_reason="finished", rewards={"seconds": seconds}
        )


class Scoring(NoOp):
    """Groups whose scoring keeps a processor busy."""

    async def compute_group_rewards(self, rollouts: Sequence[RolloutAttempt]) -> Mapping[str, RewardMap]:
        """Count for some milliseconds."""
        total = sum(number % 7 for number in range(200_000))
        return {rollout.rollout_id: {"total": total} for rollout in rollouts}


class Waiting(NoOp):
    """Rollouts that wait until `model` of them have come, and then for a dataset with two examples to be asked for."""

    def __init__(self) -> None:
        self.here = 0
        self.all_here = asyncio.Event()
        self.release = asyncio.Event()

    async def create_dataset(self, split: Any, base_dir: Path, *, max_examples: int | None = None) -> Dataset[None]:
        """One example; asked for one, when all have come, for two, when they may go."""
        if max_examples == 1:
            await self.all_here.wait()
        if max_examples == 2:
            self.release.set()
        return await super().create_dataset(split, base_dir)

    async def run_rollout(self, request: RolloutRequest[None]) -> RolloutAttempt:
        """Wait."""
        self.here += 1
        if self.here == int(request.model):
            self.all_here.set()
        await self.release.wait()
        return await super().run_rollout(request)


def chosen() -> Environment[None, RolloutAttempt]:
    """The environment that `BENCHMARK_SUBJECT` names."""
    kind: type[NoOp] = globals()[os.environ.get("BENCHMARK_SUBJECT", "NoOp")]
    return kind()
