"""Rewards of completions and of groups of them."""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmax.auth import StaticBearerAuth
from benchmax.envs import BaseEnv, BaseRollout, Dataset, Example, RolloutRequest
from benchmax.rewards import (
    Judge,
    JudgeError,
    Rubric,
    RubricCache,
    rank_group_rubrics,
    rubric_reward_key,
    score_group_rubrics,
    score_rubrics,
)
from tests.contract.loopback import ModelServer, Received, Reply, completion, error
from tests.contract.rewards_lab import answer, answer_by_prompt, judge_at, prompt_of, prompts_of

CLEAR = Rubric("Is clear", "it is clear")
WRONG = Rubric("wrong", "it is wrong", "negative", {0: "no", 2: "some", 5: "much"})


def said(*texts: str) -> list[Any]:
    return [[{"role": "assistant", "content": text}] for text in texts]


def score_by_title(prompt: str) -> dict[str, Any]:
    """Score 1 for clear, 2 for wrong; on generated rubrics 1 for the response `good` and 0 for others."""
    if "Title: Is clear" in prompt:
        return {"score": 1}
    if "Title: wrong" in prompt:
        return {"score": 2}
    return {"score": int("\ngood\n" in prompt)}


def test_a_key_is_the_title_in_lower_case_letters_digits_and_single_underscores() -> None:
    assert rubric_reward_key(Rubric("  Is it --CLEAR?? (v2) ", "d")) == "rubric_is_it_clear_v2"
    assert rubric_reward_key(Rubric("Größe", "d")) == "rubric_gr_e"


def test_a_title_without_letter_or_digit_has_no_key() -> None:
    with pytest.raises(ValueError, match="letter or digit"):
        rubric_reward_key(Rubric("--ü--", "d"))


@given(st.text(min_size=1).filter(str.strip))
def test_a_key_has_one_form_or_there_is_none(title: str) -> None:
    try:
        key = rubric_reward_key(Rubric(title, "d"))
    except ValueError:
        assert not re.search("[a-z0-9]", title.lower())
    else:
        assert re.fullmatch("rubric(_[a-z0-9]+)+", key)


# --- one completion


async def score(server: ModelServer, text: Any = "good", **options: Any) -> dict[str, float]:
    given: dict[str, Any] = {
        "ground_truth": None,
        "rubrics": [CLEAR, WRONG],
        "question": "q?",
        "judge": judge_at(server, max_retries=0),
        **options,
    }
    return await score_rubrics("r1", text, **given)


async def test_every_rubric_gives_the_reward_of_its_score(model_server: ModelServer) -> None:
    answer_by_prompt(model_server, score_by_title)
    assert await score(model_server) == pytest.approx({"rubric_is_clear": 1.0, "rubric_wrong": 0.6})
    assert len(model_server.requests) == 2


async def test_rubrics_are_evaluated_concurrently(model_server: ModelServer) -> None:
    model_server.answer = lambda received: Reply(answer({"score": 0}).body, held=True)
    task = asyncio.create_task(score(model_server))
    await asyncio.to_thread(model_server.wait_for_requests, 2)
    model_server.release()
    assert await task == {"rubric_is_clear": 0.0, "rubric_wrong": 1.0}


@pytest.mark.parametrize("text", ["", " ", [], [{"role": "user", "content": "x"}]])
async def test_an_empty_completion_scores_zero_unasked_also_on_negative_rubrics(
    model_server: ModelServer, text: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="benchmax.rewards"):
        assert await score(model_server, text) == {"rubric_is_clear": 0.0, "rubric_wrong": 0.0}
    assert model_server.requests == []
    (record,) = caplog.records
    assert record.getMessage().startswith("rubric.scored rollout_id=r1 ")
    assert record.getMessage().endswith(" empty_completion=true")


async def test_the_ground_truth_is_shown_as_text_unless_it_is_none(model_server: ModelServer) -> None:
    answer_by_prompt(model_server, score_by_title)
    await score(model_server, ground_truth=4711, rubrics=[CLEAR])
    await score(model_server, ground_truth=None, rubrics=[CLEAR])
    assert ["4711" in prompt for prompt in prompts_of(model_server)] == [True, False]
    assert "None" not in prompts_of(model_server)[1]


async def test_a_failing_judge_propagates_and_cancels_the_other_evaluations(model_server: ModelServer) -> None:
    def decide(received: Received) -> Reply:
        return error(500, None) if "Title: wrong" in prompt_of(received) else Reply(held=True)

    model_server.answer = decide
    with pytest.raises(JudgeError, match="wrong"):
        await score(model_server)
    # the connection of the answered request may stay for later ones
    await asyncio.to_thread(model_server.wait_for_connections_left, 1)


async def test_cancelling_the_scoring_cancels_its_evaluations(model_server: ModelServer) -> None:
    model_server.answer = lambda received: Reply(held=True)
    task = asyncio.create_task(score(model_server))
    await asyncio.to_thread(model_server.wait_for_requests, 2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.to_thread(model_server.wait_for_connections_left, 0)


async def test_no_rubric_and_repeated_keys_are_refused(model_server: ModelServer) -> None:
    with pytest.raises(ValueError, match="at least one rubric"):
        await score(model_server, rubrics=[])
    with pytest.raises(ValueError, match="unique reward keys"):
        await score(model_server, rubrics=[CLEAR, Rubric("is-clear", "x")])
    assert model_server.requests == []


async def test_rewards_are_logged(model_server: ModelServer, caplog: pytest.LogCaptureFixture) -> None:
    answer_by_prompt(model_server, score_by_title)
    with caplog.at_level(logging.INFO, logger="benchmax.rewards.scoring"):
        await score(model_server, rubrics=[CLEAR])
    texts = [record.getMessage() for record in caplog.records if record.name == "benchmax.rewards.scoring"]
    assert texts == ["rubric.scored rollout_id=r1 rewards={'rubric_is_clear': 1.0}"]


# --- groups


GROUP_SCORERS = [score_group_rubrics, rank_group_rubrics]


async def group(scorer: Any, server: ModelServer, ids: Any, completions: Any, **options: Any) -> Any:
    given: dict[str, Any] = {
        "ground_truth": None,
        "rubrics": [CLEAR],
        "question": "q?",
        "judge": judge_at(server, max_retries=0),
        **options,
    }
    return await scorer(ids, completions, **given)


@pytest.mark.parametrize("scorer", GROUP_SCORERS)
@pytest.mark.parametrize(
    ("ids", "completions", "options", "text"),
    [
        (["a"], ["x", "y"], {}, "same length"),
        ([], [], {}, "at least one rollout"),
        ([" "], ["x"], {}, r"rollout_ids\[0\]"),
        ([7], ["x"], {}, r"rollout_ids\[0\]"),
        (["a", "a"], ["x", "y"], {}, "unique rollout ids"),
        (["a"], ["x"], {"rubrics": []}, "at least one rubric"),
        (["a"], ["x"], {"rubrics": [CLEAR, CLEAR]}, "unique reward keys"),
    ],
)
async def test_what_groups_refuse(
    model_server: ModelServer, scorer: Any, ids: Any, completions: Any, options: Any, text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        await group(scorer, model_server, ids, completions, **options)
    assert model_server.requests == []


async def test_a_group_is_scored_concurrently_and_in_order_and_empty_siblings_keep_zeros(
    model_server: ModelServer, caplog: pytest.LogCaptureFixture
) -> None:
    def decide(received: Received) -> Reply:
        return Reply(answer({"score": int("\ngood\n" in prompt_of(received))}).body, held=True)

    model_server.answer = decide
    rubrics = [CLEAR, Rubric("other", "d", "negative")]
    with caplog.at_level(logging.INFO, logger="benchmax.rewards.scoring"):
        task = asyncio.create_task(
            group(score_group_rubrics, model_server, ["a", "b", "c"], said("good", "", "bad"), rubrics=rubrics)
        )
        await asyncio.to_thread(model_server.wait_for_requests, 4)
        model_server.release()
        assert await task == [
            {"rubric_is_clear": 1.0, "rubric_other": 0.0},
            {"rubric_is_clear": 0.0, "rubric_other": 0.0},
            {"rubric_is_clear": 0.0, "rubric_other": 1.0},
        ]
    texts = [record.getMessage() for record in caplog.records if record.name == "benchmax.rewards.scoring"]
    assert [text.split()[1] for text in texts] == ["rollout_id=a", "rollout_id=b", "rollout_id=c"]
    assert ["empty_completion=true" in text for text in texts] == [False, True, False]


async def test_a_failing_judge_fails_the_group(model_server: ModelServer) -> None:
    model_server.answer = lambda received: error(500, None)
    with pytest.raises(JudgeError):
        await group(score_group_rubrics, model_server, ["a", "b"], ["x", "y"])


def adaptive_judge(prompt: str) -> dict[str, Any]:
    if "positive_rubrics" in prompt:
        generated = [{"title": "Made up", "description": "d"}, {"title": "Pointless", "description": "same for all"}]
        flaws = [{"title": "Flawed", "description": "d"}]
        return {"question": "q?", "positive_rubrics": generated, "negative_rubrics": flaws}
    if "Title: Pointless" in prompt:
        return {"score": 1}
    return score_by_title(prompt)


async def test_the_adaptive_reward_is_the_mean_over_the_rubrics_that_tell_responses_apart(
    model_server: ModelServer,
) -> None:
    answer_by_prompt(model_server, adaptive_judge)
    rewards = await group(
        score_group_rubrics, model_server, ["a", "b", "c"], said("good", "bad", ""), use_adaptive=True
    )
    # on Made up a gets 1 and b 0; on the negative Flawed the reverse; Pointless is dropped
    assert rewards == [
        {"rubric_is_clear": 1.0, "rubric_adaptive": 0.5},
        {"rubric_is_clear": 1.0, "rubric_adaptive": 0.5},
        {"rubric_is_clear": 0.0, "rubric_adaptive": 0.0},
    ]
    titles = Counter(match[1] for prompt in prompts_of(model_server) if (match := re.search("Title: (.*)", prompt)))
    assert titles == {"Is clear": 2, "Made up": 4, "Flawed": 4, "Pointless": 2}


async def test_with_adaptive_rubrics_no_others_are_needed_and_the_key_is_always_there(
    model_server: ModelServer,
) -> None:
    answer_by_prompt(model_server, adaptive_judge)
    lone = await group(score_group_rubrics, model_server, ["a", "b"], ["x", ""], rubrics=[], use_adaptive=True)
    assert lone == [{"rubric_adaptive": 0.0}, {"rubric_adaptive": 0.0}]
    assert model_server.requests == []


async def test_a_given_cache_is_used_and_kept(model_server: ModelServer) -> None:
    cache = RubricCache()
    cache.consider("q?", Rubric("From before", "d"), [0, 1])
    answer_by_prompt(model_server, adaptive_judge)
    (rewards,) = await group(
        score_group_rubrics, model_server, ["a"], ["good"], rubrics=[], use_adaptive=True, cache=cache
    )
    assert rewards == {"rubric_adaptive": 1.0}
    assert len(model_server.requests) == 1
    await group(score_group_rubrics, model_server, ["a", "b"], ["good", "b"], use_adaptive=True, cache=cache)
    assert {rubric.title for rubric in cache.get("q?").all} == {"From before", "Made up", "Flawed"}


async def test_existing_rubrics_are_shown_to_the_generator_and_never_scored(model_server: ModelServer) -> None:
    answer_by_prompt(model_server, adaptive_judge)
    existing = [Rubric("Known already", "d")]
    rewards = await group(
        score_group_rubrics, model_server, ["a", "b"], ["x", "y"], use_adaptive=True, existing_rubrics=existing
    )
    assert all(set(components) == {"rubric_is_clear", "rubric_adaptive"} for components in rewards)
    (generation,) = [prompt for prompt in prompts_of(model_server) if "positive_rubrics" in prompt]
    assert "- Known already: d" in generation
    assert not any("Title: Known already" in prompt for prompt in prompts_of(model_server))


async def test_a_rubric_may_not_take_the_adaptive_key(model_server: ModelServer) -> None:
    with pytest.raises(ValueError, match=r"unique reward keys.*rubric_adaptive"):
        rubrics = [Rubric("Adaptive", "d")]
        await group(score_group_rubrics, model_server, ["a"], ["x"], rubrics=rubrics, use_adaptive=True)


async def test_a_group_is_ranked_once_per_rubric_concurrently(
    model_server: ModelServer, caplog: pytest.LogCaptureFixture
) -> None:
    def decide(received: Received) -> Reply:
        tiers = [[0], [1]] if "Is clear" in prompt_of(received) else [[1], [0]]
        return Reply(answer({"ranking": tiers}).body, held=True)

    model_server.answer = decide
    with caplog.at_level(logging.INFO, logger="benchmax.rewards.scoring"):
        task = asyncio.create_task(
            group(rank_group_rubrics, model_server, ["a", "b", "c"], said("x", "", "y"), rubrics=[CLEAR, WRONG])
        )
        await asyncio.to_thread(model_server.wait_for_requests, 2)
        model_server.release()
        assert await task == [
            {"rubric_is_clear": 1.0, "rubric_wrong": 0.0},
            {"rubric_is_clear": 0.0, "rubric_wrong": 0.0},
            {"rubric_is_clear": 0.0, "rubric_wrong": 1.0},
        ]
    texts = [record.getMessage() for record in caplog.records if record.name == "benchmax.rewards.scoring"]
    assert texts[0] == "rubric.ranked rollout_id=a rewards={'rubric_is_clear': 1.0, 'rubric_wrong': 0.0}"
    assert len(texts) == 3


@pytest.mark.parametrize(
    ("ground_truth", "options", "items"),
    [
        (" 4711 ", {}, 3),
        (4711, {}, 3),
        (4711, {"include_ground_truth": False}, 2),
        (None, {}, 2),
        ("  ", {}, 2),
    ],
)
async def test_the_ground_truth_is_ranked_along_as_text_if_there_is_one(
    model_server: ModelServer, ground_truth: Any, options: Any, items: int
) -> None:
    answer_by_prompt(model_server, lambda prompt: {"ranking": [list(range(items))]})
    rewards = await group(
        rank_group_rubrics, model_server, ["a", "b"], ["x", "y"], ground_truth=ground_truth, **options
    )
    assert rewards == [{"rubric_is_clear": 0.5}] * 2
    assert ("\n4711\n" in prompts_of(model_server)[0]) == (items == 3)


async def test_a_failing_ranking_fails_the_group(model_server: ModelServer) -> None:
    answer_by_prompt(model_server, lambda prompt: "prose")
    with pytest.raises(JudgeError, match="ranking failed"):
        await group(rank_group_rubrics, model_server, ["a", "b"], ["x", "y"])


# --- in an environment


class Judged(BaseEnv):
    max_turns = 1

    def __init__(self, judge: Judge) -> None:
        super().__init__()
        self.judge = judge

    async def create_dataset(self, split: Any, base_dir: Any, *, max_examples: int | None = None) -> Dataset[Any]:
        return Dataset([])

    async def compute_reward(self, rollout: BaseRollout) -> dict[str, float]:
        messages: Any = rollout.messages
        return await score_rubrics(
            rollout.rollout_id, messages, ground_truth=None, rubrics=[CLEAR], question="q?", judge=self.judge
        )


async def test_a_judge_outage_in_one_rollout_leaves_its_siblings_scored(model_server: ModelServer) -> None:
    def decide(received: Received) -> Reply:
        if received.headers["authorization"] == "Bearer judge":
            return error(503, None) if "\nbroken\n" in prompt_of(received) else answer({"score": 1})
        return completion("broken" if received.headers["authorization"] == "Bearer r1" else "fine")

    model_server.answer = decide
    env = Judged(Judge("m", model_server.url, StaticBearerAuth("judge"), max_retries=0))
    example: Example[Any] = Example("e", {"prompt_messages": [{"role": "user", "content": "q?"}]})
    outcomes = await env.run_group(
        [RolloutRequest(name, example, "m", model_server.url, StaticBearerAuth(name)) for name in ("r0", "r1", "r2")]
    )
    assert {name: outcome.termination_reason for name, outcome in outcomes.items()} == {
        "r0": "finished",
        "r1": "judge_error",
        "r2": "finished",
    }
    assert [outcomes[name].rewards for name in ("r0", "r1", "r2")] == [
        {"rubric_is_clear": 1.0},
        {},
        {"rubric_is_clear": 1.0},
    ]
    assert "evaluation failed" in str(outcomes["r1"].error)
