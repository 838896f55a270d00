"""Explanations for children, scored by a judge: another model that is asked about each answer, and about all of them.

It shows rubrics of three kinds (a scale, a quality, a flaw), a ranking of the siblings against a reference answer, and
a judge whose key never reaches the bundle. The first line needs no key and starts a judge of its own:

    python examples/judged/run.py
    benchmax bundle examples/judged/judged.py:Judged --out out/judged \
        --arg judge_model='"NAME"' --arg judge_url='"https://judge.example/v1"'
    benchmax run out/judged --data examples/judged --model local --auth judge=env:JUDGE_KEY@https://judge.example/v1
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmax.auth import InjectedAuth
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
from benchmax.rewards import Judge, Rubric, rank_group_rubrics, score_rubrics

RUBRICS = [
    Rubric(
        "Correct",
        "What the answer says about the cause is true. Compare it with the reference answer.",
        score_map={0: "the cause is wrong or missing", 1: "right with an error in a detail", 2: "entirely right"},
    ),
    Rubric("Plain words", "A child of twelve knows every word, or the answer explains it on the spot."),
    Rubric("Talks down", "The answer belittles the reader or praises the question.", polarity="negative"),
]
CLEAREST = Rubric("Clearest", "After reading it once, a child of twelve could explain the cause to a friend.")


def to_example(row: JsonRow) -> Example[JsonRow]:
    """Make an example of one line of the data: `{"question": ..., "reference": ...}`."""
    system = "Explain it to a child of twelve, in at most three sentences."
    prompt = [{"role": "system", "content": system}, {"role": "user", "content": row["question"]}]
    return Example(canonical_example_id(row), {**row, "prompt_messages": prompt})


class Judged(BaseEnv):
    """One question, one answer. A judge that fails costs that rollout its rewards and no other rollout."""

    max_turns = 1

    def __init__(self, *, judge_model: str, judge_url: str) -> None:
        super().__init__()
        # a name and not a key: whoever runs the bundle binds it
        self.judge = Judge(judge_model, judge_url, InjectedAuth("judge"))

    async def create_dataset(
        self, split: DatasetSplit, base_dir: Path, *, max_examples: int | None = None
    ) -> Dataset[JsonRow]:
        return JsonlDataset(base_dir / f"{split}.jsonl", row_to_example=to_example, max_examples=max_examples)

    async def compute_reward(self, rollout: BaseRollout) -> RewardMap:
        return await score_rubrics(
            rollout.rollout_id,
            rollout.messages,
            ground_truth=rollout.example_args["reference"],
            question=rollout.example_args["question"],
            rubrics=RUBRICS,
            judge=self.judge,
        )

    async def compute_group_rewards(self, rollouts: Sequence[BaseRollout]) -> Mapping[str, RewardMap]:
        ids = [rollout.rollout_id for rollout in rollouts]
        ranked = await rank_group_rubrics(
            ids,
            [rollout.messages for rollout in rollouts],
            ground_truth=rollouts[0].example_args["reference"],
            question=rollouts[0].example_args["question"],
            rubrics=[CLEAREST],
            judge=self.judge,
        )
        return dict(zip(ids, ranked, strict=True))
