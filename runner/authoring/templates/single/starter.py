"""Sums to be worked out: one question, one answer."""

import re
from pathlib import Path

from benchmax.envs import (
    BaseEnv,
    BaseRollout,
    Dataset,
    DatasetSplit,
    Example,
    JsonlDataset,
    JsonRow,
    RewardMap,
    canonical_example_id,
)


def to_example(row: JsonRow) -> Example[JsonRow]:
    """Make an example of one line of the data: `{"question": ..., "answer": ...}`."""
    messages = [
        {"role": "system", "content": "Reply with the result alone."},
        {"role": "user", "content": row["question"]},
    ]
    return Example(canonical_example_id(row), {"prompt_messages": messages, "answer": row["answer"]})


class Starter(BaseEnv):
    """The model is asked once; the last number of its answer counts."""

    max_turns = 1

    async def create_dataset(
        self, split: DatasetSplit, base_dir: Path, *, max_examples: int | None = None
    ) -> Dataset[JsonRow]:
        """Read `train.jsonl` or `eval.jsonl` of the data folder."""
        return JsonlDataset(base_dir / f"{split}.jsonl", row_to_example=to_example, max_examples=max_examples)

    async def compute_reward(self, rollout: BaseRollout) -> RewardMap:
        """Score one answer: each reward has a name, and 1 is what you want to see."""
        text = str(rollout.messages[-1].get("content"))
        numbers = re.findall(r"-?\d+", text)
        correct = bool(numbers) and int(numbers[-1]) == rollout.example_args["answer"]
        return {"correct": float(correct)}
