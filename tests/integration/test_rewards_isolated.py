"""Judges of isolated environments: failing ones beside good siblings, shared connections, a small real model."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from benchmax.auth import InjectedAuth, StaticBearerAuth, bind_model_auth
from benchmax.bundle import load_bundle
from benchmax.envs import RolloutOutcome
from benchmax.rewards import Judge, JudgeError, Rubric, evaluate_rubric_ranking, evaluate_single_rubric
from runner import Binding, isolate
from runner.limits import Limits
from runner.models import SampleAuth, parse_model
from runner.models.server import serving
from runner.provision import Cache
from tests.contract import judged_environment
from tests.contract.loopback import running_server
from tests.contract.rewards_lab import ANSWERS, OUTAGES, judge_beside_a_model, requests_by_name
from tests.integration.isolation import bundled

pytestmark = pytest.mark.integration


def judge_at(url: str, **options: Any) -> Judge:
    given: dict[str, Any] = {"timeout": 2, "max_retries": 0, "auth_attempts": 1, **options}
    return Judge("judge", url, InjectedAuth("judge"), **given)


@pytest.mark.parametrize("ranked", [False, True])
async def test_an_outage_costs_its_own_rollout_the_rewards_isolated_as_in_process(
    shared_cache: Path, tmp_path: Path, ranked: bool
) -> None:
    auth, names = StaticBearerAuth("judge"), [*OUTAGES, *ANSWERS]
    with running_server() as server:
        server.answer = judge_beside_a_model
        bundle = bundled(judged_environment, "Judged", judge=judge_at(server.url), ranked=ranked)
        here = load_bundle(bundle)
        example = (await here.create_dataset("eval", tmp_path))[0]
        with bind_model_auth({"judge": auth}):
            expected = await here.run_group(requests_by_name(example, server.url, names))
        binding = Binding(auth, urls=[server.url])
        async with isolate(bundle, auth={"judge": binding}, cache=Cache(shared_cache)) as env:
            example = (await env.create_dataset("eval", tmp_path))[0]
            outcomes = await env.run_group(requests_by_name(example, server.url, names))
    assert outcomes == expected
    rewards = {"rubric_good": 1.0, "rubric_better": 0.5} if ranked else {"rubric_good": 1.0}
    assert all(outcomes[name] == RolloutOutcome(rewards, "finished") for name in ANSWERS)
    assert {outcomes[name].termination_reason for name in OUTAGES} == {"judge_error"}


async def test_a_judge_that_is_refused_its_key_costs_no_more_than_its_own_verdicts(
    shared_cache: Path, tmp_path: Path
) -> None:
    with running_server() as server, running_server() as elsewhere:
        server.answer = elsewhere.answer = judge_beside_a_model
        bundle = bundled(judged_environment, "Judged", judge=judge_at(elsewhere.url))
        # bound for another address than the one that the bundle's judge has
        binding = Binding(StaticBearerAuth("judge"), urls=[server.url])
        async with isolate(bundle, auth={"judge": binding}, cache=Cache(shared_cache)) as env:
            example = (await env.create_dataset("eval", tmp_path))[0]
            outcomes = await env.run_group(requests_by_name(example, server.url, ["plain", "fenced"]))
        assert elsewhere.requests == []
    for outcome in outcomes.values():
        assert (outcome.rewards, outcome.termination_reason) == ({}, "judge_error")
        assert "urls=" in str(outcome.error)


async def test_judges_of_a_worker_share_connections(shared_cache: Path, tmp_path: Path) -> None:
    with running_server() as server, running_server() as judging:
        server.answer = judging.answer = judge_beside_a_model
        bundle = bundled(judged_environment, "Judged", judge=judge_at(judging.url))
        binding = Binding(StaticBearerAuth("judge"), urls=[judging.url])
        async with isolate(bundle, auth={"judge": binding}, cache=Cache(shared_cache)) as env:
            example = (await env.create_dataset("eval", tmp_path))[0]
            for _ in range(5):
                outcomes = await env.run_group(requests_by_name(example, server.url, ["plain", "fenced"]))
                assert [outcome.rewards for outcome in outcomes.values()] == [{"rubric_good": 1.0}] * 2
        assert len(judging.requests) == 10
        assert judging.connections <= 2


FORMS = [
    'Write a JSON object with one key "score" and the value 1.',
    'Give me an example of a JSON object with the key "score".',
    'Convert to JSON.\nname is Tom -> {"name": "Tom"}\nage is 7 -> {"age": 7}\nscore is 1 ->',
]


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_verdicts_of_a_small_real_model_are_read_or_refused_for_a_reason(shared_cache: Path) -> None:
    """It judges badly. What is in one of the forms is read, mostly a fence with prose after it; nothing is repaired."""
    rubric, question, texts = Rubric("Polite", "It is polite."), "What time is it?", ["Good day! It is noon.", "Noon."]
    async with serving(parse_model("local", base_url=None), cache=Cache(shared_cache), limits=Limits()) as server:
        judge = Judge(server.model, server.base_url, SampleAuth(), timeout=None, max_retries=0)
        answers = await asyncio.gather(
            *(judge.request_json(form, request_id="form", max_tokens=60) for form in FORMS), return_exceptions=True
        )
        evaluation, ranking = await asyncio.gather(
            evaluate_single_rubric(rubric, question=question, response=texts[0], judge=judge),
            evaluate_rubric_ranking(rubric, question=question, responses=texts, judge=judge),
            return_exceptions=True,
        )
    read = [answer for answer in answers if not isinstance(answer, BaseException)]
    assert any("score" in found and "score" in raw for found, raw in read), answers
    for verdict in [*answers, evaluation, ranking]:
        if isinstance(verdict, BaseException):
            assert isinstance(verdict, JudgeError)
            assert re.search("valid JSON object|'score'|'ranking'|'reasoning'", str(verdict))
    if not isinstance(evaluation, BaseException):
        assert evaluation.score in (0.0, 1.0)
    if not isinstance(ranking, BaseException):
        assert sorted(index for tier in ranking.ranking for index in tier) == [0, 1]
