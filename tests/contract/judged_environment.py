"""An environment whose answers a judge scores, each on its own and perhaps all against each other.

It stands in a module of its own to be bundled by value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmax.envs import BaseEnv, BaseRollout, Dataset, DatasetSplit, Example, JsonRow, RewardMap
from benchmax.rewards import Judge, Rubric, rank_group_rubrics, score_rubrics

GOOD = Rubric("Good", "The answer is good.")
BETTER = Rubric("Better", "The answer is better than the others.")


class Judged(BaseEnv):
    max_turns = 1

    def __init__(self, judge: Judge, *, ranked: bool = False) -> None:
        super().__init__()
        self.judge = judge
        self.ranked = ranked

    async def create_dataset(
        self, split: DatasetSplit, base_dir: Path, *, max_examples: int | None = None
    ) -> Dataset[JsonRow]:
        return Dataset([Example("only", {"prompt_messages": [{"role": "user", "content": "q?"}]})])

    async def compute_reward(self, rollout: BaseRollout) -> RewardMap:
        return await score_rubrics(
            rollout.rollout_id, rollout.messages, ground_truth=None, rubrics=[GOOD], question="q?", judge=self.judge
        )

    async def compute_group_rewards(self, rollouts: Sequence[BaseRollout]) -> Mapping[str, RewardMap] | None:
        if not self.ranked:
            return None
        ids = [rollout.rollout_id for rollout in rollouts]
        completions = [rollout.messages for rollout in rollouts]
        ranked = await rank_group_rubrics(
            ids, completions, ground_truth=None, rubrics=[BETTER], question="q?", judge=self.judge
        )
        return dict(zip(ids, ranked, strict=True))
