"""Scoring of one rollout in the stock environment."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from benchmax.envs import BaseRollout, RewardMap, RolloutFailure, RolloutOutcome
from tests.contract.loopback import ModelServer, completion, error
from tests.contract.test_base_env_loop import PROMPT, Env, logged, request, rollout


class Scoring(Env):
    """Its reward is, or raises, a given value."""

    def __init__(self, reward: Any, group: Any = None) -> None:
        super().__init__()
        self.reward = reward
        self.group = group
        self.scored: list[BaseRollout] = []

    async def compute_reward(self, rollout: BaseRollout) -> RewardMap | None:
        self.scored.append(rollout)
        if isinstance(self.reward, BaseException):
            raise self.reward
        reward: RewardMap | None = self.reward
        return reward

    async def compute_group_rewards(self, rollouts: Sequence[BaseRollout]) -> Mapping[str, RewardMap] | None:
        rewards: Mapping[str, RewardMap] | None = self.group
        return rewards


async def test_the_reward_sees_the_whole_unscored_rollout(model_server: ModelServer) -> None:
    environment = Scoring({"x": 0.5})
    result = await rollout(model_server, environment, {"prompt_messages": PROMPT, "answer": "42"})
    (seen,) = environment.scored
    assert seen.rewards is None
    assert seen.error is None
    assert seen.messages == [*PROMPT, {"role": "assistant", "content": "42"}]
    assert seen.messages is result.messages
    assert seen.example_args == {"answer": "42"}
    assert seen.split == "eval"
    assert result.rewards == {"x": 0.5}


async def test_a_reason_that_is_not_scorable_gets_empty_rewards_without_asking(model_server: ModelServer) -> None:
    model_server.answer = lambda received: completion(finish="content_filter")
    environment = Scoring({"x": 1.0})
    result = await rollout(model_server, environment)
    assert (result.rewards, result.error, environment.scored) == ({}, None, [])


async def test_budget_stops_are_scored(model_server: ModelServer) -> None:
    model_server.answer = lambda received: completion(finish="length")
    assert (await rollout(model_server, Scoring({"x": 1}))).rewards == {"x": 1}


async def test_no_reward_is_fine_if_the_group_supplies_one(model_server: ModelServer) -> None:
    outcomes = await Scoring(None, {"r": {"g": 1.0}}).run_group([request(model_server)])
    assert outcomes == {"r": RolloutOutcome({"g": 1.0}, "finished")}


@pytest.mark.parametrize("reward", [{"x": float("nan")}, {"x": True}, {"": 1}, [("x", 1.0)]])
async def test_an_invalid_reward_map_is_a_contract_error(model_server: ModelServer, reward: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="rewards"):
        await Scoring(reward).run_group([request(model_server)])


@pytest.mark.parametrize(
    ("failure", "reason", "text"),
    [
        (RolloutFailure("judge_error", "judge is away"), "judge_error", "judge is away"),
        (KeyError("k"), "reward_error", "KeyError: 'k'"),
    ],
)
@pytest.mark.parametrize("budget_stop", [False, True])
async def test_a_failing_reward_replaces_only_finished_and_is_logged_by_its_own_reason(
    model_server: ModelServer,
    caplog: pytest.LogCaptureFixture,
    failure: Exception,
    reason: str,
    text: str,
    budget_stop: bool,
) -> None:
    if budget_stop:
        model_server.answer = lambda received: error(400, "context_budget_exceeded")
    result = await rollout(model_server, Scoring(failure))
    assert result.rewards == {}
    assert result.error == text
    assert result.termination_reason == ("context_exceeded" if budget_stop else reason)
    assert logged(caplog)[-1] == (
        logging.ERROR,
        f"base.rollout.reward_failed rollout_id=r termination_reason={reason}: {text}",
        True,
    )


async def test_a_relabelled_rollout_drops_out_of_group_scoring_and_a_budget_stop_stays_in(
    model_server: ModelServer,
) -> None:
    outcomes = await Scoring(KeyError("k"), {}).run_group([request(model_server)])
    assert outcomes == {"r": RolloutOutcome({}, "reward_error", "KeyError: 'k'")}
    model_server.answer = lambda received: completion(finish="length")
    outcomes = await Scoring(KeyError("k"), {"r": {"g": 1}}).run_group([request(model_server)])
    assert outcomes == {"r": RolloutOutcome({"g": 1}, "output_exceeded", "KeyError: 'k'")}
