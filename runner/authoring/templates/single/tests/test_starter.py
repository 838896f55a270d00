"""What the environment holds: run `python -m pytest`."""

import asyncio
from pathlib import Path

import pytest
from benchmax.envs import BaseRollout, DatasetSplit, RewardMap

from starter import Starter

DATA = Path(__file__).parents[1] / "data"


def reward(text: str, answer: int) -> RewardMap | None:
    """Score an answer without a model."""
    rollout = BaseRollout(
        rollout_id="r",
        termination_reason="finished",
        messages=[{"role": "assistant", "content": text}],
        example_args={"answer": answer},
    )
    rewards: RewardMap | None = asyncio.run(Starter().compute_reward(rollout))
    return rewards


@pytest.mark.parametrize("split", ["train", "eval"])
def test_every_example_has_an_id_of_its_own(split: DatasetSplit) -> None:
    dataset = asyncio.run(Starter().create_dataset(split, DATA))
    assert len({example.id for example in dataset}) == len(dataset) > 0


def test_the_right_number_is_rewarded_however_it_is_said() -> None:
    assert reward("42", 42) == {"correct": 1.0}
    assert reward("17 + 25 is 42.", 42) == {"correct": 1.0}


def test_a_wrong_number_and_none_at_all_are_not() -> None:
    assert reward("41", 42) == {"correct": 0.0}
    assert reward("No idea.", 42) == {"correct": 0.0}
