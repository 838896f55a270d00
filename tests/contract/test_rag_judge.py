"""A group of siblings whose judge answers well, badly or not at all: each is scored on its own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import openai
import pytest

from benchmax.auth import InjectedAuth, ModelRequestContext, StaticBearerAuth, bind_model_auth
from benchmax.envs import Example, RolloutOutcome, RolloutRequest
from benchmax.rag import RagEnv
from tests.contract.loopback import ModelServer, Received, Reply, call, completion, error
from tests.contract.rag_lab import Corpus, chunks, env_at, found

PERFECT = {"answer_correctness": 1.0, "retrieval_hit": 0.3, "citation_recall": 0.3, "citation_grounding": 0.2}
RIGHT = completion('{"score": 1, "reasoning": "it agrees"}')
ANSWERS = {
    "an object": RIGHT,
    "prose around it": completion('I would say {"score": 1, "reasoning": "fine"}, all in all.'),
    "a fence": completion('```json\n{"score": 1}\n```'),
    "a think block": completion('<think>{"score": 0}? No.</think>\n{"score": 1}'),
    "a float": completion('{"score": 1.0}'),
    "an object in a list": completion('[{"score": 1}]'),
}
OUTAGES = {
    "prose alone": (completion("It is right."), "valid JSON object"),
    "nothing": (completion(""), "empty response"),
    "no content": (completion(None), "empty response"),
    "no choices": (Reply({"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": []}), "empty"),
    "an object without a score": (completion('{"verdict": "right"}'), "score"),
    "a score as text": (completion('{"score": "1"}'), "score"),
    "a bool": (completion('{"score": true}'), "score"),
    "no number": (completion('{"score": NaN}'), "score"),
    "a score between": (completion('{"score": 0.5}'), "not one of"),
    "a reason that is no text": (completion('{"score": 1, "reasoning": ["a"]}'), "reasoning"),
    "a refused credential": (error(401, None), "authentication failed"),
    "a forbidden model": (error(403, None), "authentication failed"),
    "too many requests": (error(429, None), "request failed"),
    "a broken server": (error(500, None), "request failed"),
    "a page": (Reply(b"<html>", content_type="text/html"), "request failed"),
    "half a body": (Reply(b'{"choices": [', content_type="application/json"), "request failed"),
    "a closed connection": (Reply(dropped=True), "request failed"),
}


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    sleep = asyncio.sleep

    async def at_once(seconds: float, result: Any = None) -> Any:
        return await sleep(0, result)

    monkeypatch.setattr(asyncio, "sleep", at_once)
    monkeypatch.setattr(openai._base_client.BaseClient, "_calculate_retry_timeout", lambda *_, **__: 0.0)


class ByRollout:
    """Tells the server which sibling asks."""

    async def headers_for_request(self, context: ModelRequestContext) -> Mapping[str, str]:
        return {"X-Rollout": context.rollout_id}


async def group(server: ModelServer, *judgements: Reply, **options: Any) -> list[RolloutOutcome]:
    """Run a sibling for each judgement: it searches, and gives a right answer that the judge replies so to."""

    def answer(received: Received) -> Reply:
        messages = received.body["messages"]
        if received.body["model"] == "judge":
            (number,) = [n for n in range(len(judgements)) if f"answer number {n} " in messages[0]["content"]]
            return judgements[number]
        if messages[-1]["role"] == "user":
            return completion(None, calls=[call("search", json.dumps({"query": "q"}))])
        sibling = received.headers["x-rollout"].rpartition("-")[2]
        return completion(f"<answer>answer number {sibling} [Source: a]</answer>")

    server.answer = answer
    env = env_at(server, Corpus([found("a.md")]), **options)
    payload = {
        "prompt_messages": [{"role": "user", "content": "q?"}],
        "question": "q?",
        "ground_truth": "g",
        "reference_chunks": chunks("a"),
    }
    requests = [
        RolloutRequest(f"r-{n}", Example("e", payload), "actor", server.url, ByRollout(), "eval")
        for n in range(len(judgements))
    ]
    return list((await env.run_group(requests)).values())


def judge_requests(server: ModelServer) -> list[Received]:
    return [received for received in server.requests if received.body["model"] == "judge"]


def right(outcome: RolloutOutcome) -> bool:
    rewards = dict(outcome.rewards)
    return 0 < rewards.pop("answer_length") < 0.2 and rewards == PERFECT


@pytest.mark.parametrize("form", ANSWERS)
async def test_a_verdict_is_read_in_every_usual_form(model_server: ModelServer, form: str) -> None:
    (outcome,) = await group(model_server, ANSWERS[form])
    assert (outcome.termination_reason, outcome.error) == ("finished", None)
    assert right(outcome)
    assert len(judge_requests(model_server)) == 1


@pytest.mark.parametrize("outage", OUTAGES)
async def test_an_outage_in_one_rollout_leaves_its_siblings_scored(model_server: ModelServer, outage: str) -> None:
    reply, said = OUTAGES[outage]
    first, failed, last = await group(model_server, RIGHT, reply, RIGHT)
    assert failed.termination_reason == "judge_error"
    assert failed.rewards == {}
    assert failed.error is not None
    assert said in failed.error
    for outcome in (first, last):
        assert (outcome.termination_reason, outcome.error) == ("finished", None)
        assert right(outcome)


async def test_a_judge_that_is_down_for_all_scores_none_and_raises_nothing(model_server: ModelServer) -> None:
    outcomes = await group(model_server, *[error(500, None)] * 3)
    assert [(outcome.termination_reason, outcome.rewards) for outcome in outcomes] == [("judge_error", {})] * 3


async def test_a_judge_that_never_answers_runs_into_its_time_out(model_server: ModelServer) -> None:
    (outcome,) = await group(model_server, Reply(held=True), judge_timeout=0.05)
    assert outcome.termination_reason == "judge_error"


async def test_a_bad_verdict_is_not_asked_for_again(model_server: ModelServer) -> None:
    await group(model_server, completion("no idea"))
    assert len(judge_requests(model_server)) == 1


async def test_the_judge_sees_question_reference_and_answer_but_no_search_results(model_server: ModelServer) -> None:
    await group(model_server, RIGHT)
    (request,) = judge_requests(model_server)
    prompt = request.body["messages"][0]["content"]
    for shown in ("q?", "answer number 0 [Source: a]", "Answer correctness"):
        assert shown in prompt
    assert "a.md" not in prompt
    assert request.headers["authorization"] == "Bearer j"


async def test_the_judges_credential_is_injected_where_the_environment_runs(model_server: ModelServer) -> None:
    with bind_model_auth({"judge": StaticBearerAuth("bound")}):
        (outcome,) = await group(model_server, RIGHT, judge_auth=InjectedAuth("judge"))
    assert right(outcome)
    assert judge_requests(model_server)[0].headers["authorization"] == "Bearer bound"


async def test_an_unbound_judge_is_an_outage_that_says_what_is_missing(model_server: ModelServer) -> None:
    (outcome,) = await group(model_server, RIGHT, judge_auth=InjectedAuth("judge"))
    assert outcome.termination_reason == "judge_error"
    assert "'judge'" in (outcome.error or "")


async def test_an_environment_that_was_not_asked_for_a_verdict_never_reaches_its_judge(
    model_server: ModelServer,
) -> None:
    model_server.answer = lambda received: completion("no answer block")
    env = RagEnv(Corpus(), judge_base_url="http://127.0.0.1:9/v1", judge_model="judge")
    example = Example("e", {"prompt_messages": [{"role": "user", "content": "q?"}], "reference_chunks": chunks("a")})
    request = RolloutRequest("r", example, "actor", model_server.url, ByRollout(), "eval")
    outcome = (await env.run_group([request]))["r"]
    assert outcome.termination_reason == "finished"
    assert set(outcome.rewards.values()) == {0.0}
