"""What the environment holds: run `python -m pytest`."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from benchmax.envs import BaseRollout, DatasetSplit, Example, Messages, RewardMap

from starter import Starter

DATA = Path(__file__).parents[1] / "data"


def call(*calls: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Make tool calls as a model would, in one rollout."""

    async def rollout() -> list[dict[str, Any]]:
        environment = Starter()
        async with environment.rollout_context("r", Example("e", {})):
            return [await environment.run_tool("r", name, **arguments) for name, arguments in calls]

    return asyncio.run(rollout())


def conversation(result: str, answer: str) -> Messages:
    """Make a transcript that ends with a tool's result and an answer."""
    return [{"role": "tool", "tool_call_id": "c", "content": result}, {"role": "assistant", "content": answer}]


def reward(messages: Messages, answer: int) -> RewardMap | None:
    """Score a transcript without a model."""
    rollout = BaseRollout(
        rollout_id="r", termination_reason="finished", messages=messages, example_args={"answer": answer}
    )
    rewards: RewardMap | None = asyncio.run(Starter().compute_reward(rollout))
    return rewards


@pytest.mark.parametrize("split", ["train", "eval"])
def test_every_example_has_an_id_of_its_own(split: DatasetSplit) -> None:
    dataset = asyncio.run(Starter().create_dataset(split, DATA))
    assert len({example.id for example in dataset}) == len(dataset) > 0


def test_the_basket_has_a_price() -> None:
    calls = call(("put", {"item": "apple", "count": 2}), ("put", {"item": "pear", "count": 1}), ("price", {}))
    assert calls[-1] == {"cents": 135}


@pytest.mark.parametrize("arguments", [{}, {"item": "gold", "count": 1}, {"item": "apple", "count": "two"}])
def test_a_call_that_makes_no_sense_is_answered(arguments: dict[str, Any]) -> None:
    (result,) = call(("put", arguments))
    assert "error" in result


def test_the_right_price_is_rewarded() -> None:
    assert reward(conversation('{"cents": 135}', "135"), 135) == {"correct": 1.0, "flawless": 1.0}


def test_a_wrong_price_after_a_bad_call_is_not() -> None:
    assert reward(conversation('{"error": "no"}', "40"), 135) == {"correct": 0.0, "flawless": 0.0}
