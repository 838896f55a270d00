"""A judge that fails, seen from a group of rollouts: whom it costs their rewards, and what is said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmax.auth import InjectedAuth, StaticBearerAuth, bind_model_auth
from benchmax.envs import RolloutOutcome
from benchmax.rewards import Judge
from tests.contract.judged_environment import Judged
from tests.contract.loopback import ModelServer, Received, Reply, completion
from tests.contract.rewards_lab import ANSWERS, OUTAGES, judge_beside_a_model, prompts_of, requests_by_name

GIVEN: dict[str, Any] = {"timeout": 2, "max_retries": 0, "auth_attempts": 1}


def judge_at(server: ModelServer) -> Judge:
    return Judge("judge", server.url, StaticBearerAuth("judge"), **GIVEN)


async def outcomes_of(env: Judged, server: ModelServer, names: Sequence[str]) -> Mapping[str, RolloutOutcome]:
    dataset = await env.create_dataset("eval", Path())
    return await env.run_group(requests_by_name(dataset[0], server.url, names))


async def test_an_outage_costs_its_own_rollout_the_rewards_and_no_sibling(model_server: ModelServer) -> None:
    model_server.answer = judge_beside_a_model
    outcomes = await outcomes_of(Judged(judge_at(model_server)), model_server, [*OUTAGES, *ANSWERS])
    for name in ANSWERS:
        assert outcomes[name] == RolloutOutcome({"rubric_good": 1.0}, "finished")
    for name, (_, text) in OUTAGES.items():
        outcome = outcomes[name]
        assert (outcome.rewards, outcome.termination_reason) == ({}, "judge_error"), name
        assert "Rubric 'Good': evaluation failed" in str(outcome.error)
        assert text in str(outcome.error), name


async def test_siblings_are_ranked_without_those_that_could_not_be_scored(model_server: ModelServer) -> None:
    model_server.answer = judge_beside_a_model
    names = ["prose", "plain", "status 500", "fenced", "thinking"]
    outcomes = await outcomes_of(Judged(judge_at(model_server), ranked=True), model_server, names)
    assert [outcomes[name].termination_reason for name in names] == [
        "judge_error", "finished", "judge_error", "finished", "finished",
    ]  # fmt: skip
    for name in ("plain", "fenced", "thinking"):
        assert outcomes[name].rewards == {"rubric_good": 1.0, "rubric_better": 0.5}
    (ranking,) = [prompt for prompt in prompts_of(model_server) if "exactly once" in prompt]
    assert all(f"\n{name}\n" in ranking for name in ("plain", "fenced", "thinking"))
    assert not any(f"\n{name}\n" in ranking for name in ("prose", "status 500"))


@pytest.mark.parametrize("outage", ["prose", "an empty body", "status 401", "status 500", "no answer"])
async def test_an_outage_of_the_ranking_costs_the_whole_group_its_rewards(
    model_server: ModelServer, outage: str
) -> None:
    def decide(received: Received) -> Reply:
        asks_for_a_ranking = '"ranking"' in str(received.body["messages"][0]["content"])
        return OUTAGES[outage][0] if asks_for_a_ranking else judge_beside_a_model(received)

    model_server.answer = decide
    outcomes = await outcomes_of(Judged(judge_at(model_server), ranked=True), model_server, ["plain", "fenced"])
    for outcome in outcomes.values():
        assert (outcome.rewards, outcome.termination_reason) == ({}, "judge_error")
        assert "Rubric 'Better': ranking failed" in str(outcome.error)
        assert OUTAGES[outage][1] in str(outcome.error)


async def test_a_rollout_that_ended_otherwise_keeps_its_reason_beside_the_judges_error(
    model_server: ModelServer,
) -> None:
    def decide(received: Received) -> Reply:
        if received.headers["authorization"] == "Bearer key of long":
            return completion("prose", finish="length")
        return judge_beside_a_model(received)

    model_server.answer = decide
    outcomes = await outcomes_of(Judged(judge_at(model_server)), model_server, ["long", "plain"])
    assert (outcomes["long"].rewards, outcomes["long"].termination_reason) == ({}, "output_exceeded")
    assert "evaluation failed" in str(outcomes["long"].error)
    assert outcomes["plain"].rewards == {"rubric_good": 1.0}


async def test_a_judge_that_nobody_bound_is_named_in_every_outcome_and_binding_it_is_enough(
    model_server: ModelServer,
) -> None:
    model_server.answer = judge_beside_a_model
    env = Judged(Judge("judge", model_server.url, InjectedAuth("judge"), **GIVEN))
    for outcome in (await outcomes_of(env, model_server, ["plain", "fenced"])).values():
        assert outcome.termination_reason == "judge_error"
        assert "No runtime model-auth provider" in str(outcome.error)
    with bind_model_auth({"judge": StaticBearerAuth("judge")}):
        outcomes = await outcomes_of(env, model_server, ["plain", "fenced"])
    assert [outcome.rewards for outcome in outcomes.values()] == [{"rubric_good": 1.0}] * 2
