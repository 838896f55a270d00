"""What the environment holds: run `python -m pytest`."""

import asyncio
from pathlib import Path

import pytest
from benchmax.envs import DatasetSplit

from starter import Starter, Tries, last_number


def attempt(rollout_id: str, *answers: int | None) -> Tries:
    """Make a rollout that went a certain way."""
    return Tries(rollout_id=rollout_id, termination_reason="finished", rewards=None, answers=answers)


@pytest.mark.parametrize("split", ["train", "eval"])
def test_every_example_has_an_id_of_its_own(split: DatasetSplit) -> None:
    dataset = asyncio.run(Starter().create_dataset(split, Path()))
    assert len({example.id for example in dataset}) == len(dataset) > 0


def test_the_splits_share_no_example() -> None:
    train, evaluation = (
        {example.id for example in asyncio.run(Starter().create_dataset(split, Path()))} for split in ("train", "eval")
    )
    assert not train & evaluation


def test_the_last_number_of_an_answer_counts() -> None:
    assert last_number("3 + 8 is 11.") == 11
    assert last_number("No idea.") is None


def test_siblings_that_agree_are_rewarded() -> None:
    group = [attempt("a", 11), attempt("b", 12, 11), attempt("c", None, 12)]
    rewards = asyncio.run(Starter().compute_group_rewards(group))
    assert rewards == {"a": {"agreement": 2 / 3}, "b": {"agreement": 2 / 3}, "c": {"agreement": 1 / 3}}
