"""Rubrics that a judge makes up, and the cache that keeps the telling ones."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmax.rewards import (
    AdaptiveRubrics,
    JudgeError,
    Rubric,
    RubricCache,
    generate_adaptive_rubrics,
    generate_and_cache_adaptive_rubrics,
)
from benchmax.rewards.adaptive import _Candidate, prompt_key
from tests.contract.loopback import ModelServer, Received, Reply, error
from tests.contract.rewards_lab import answer, answer_by_prompt, judge_at, prompt_of, prompts_of, script_answers


def test_all_is_positive_then_negative() -> None:
    good, bad = Rubric("g", "d"), Rubric("b", "d", "negative")
    assert AdaptiveRubrics() == AdaptiveRubrics((), ())
    assert AdaptiveRubrics((good,), (bad,)).all == (good, bad)


# --- the cache


@pytest.mark.parametrize("most", [0, -1, True, 1.0, None, "3"])
def test_a_cache_for_fewer_than_one_rubric_is_refused(most: Any) -> None:
    with pytest.raises(ValueError, match="max_per_polarity"):
        RubricCache(max_per_polarity=most)


def titles(cache: RubricCache, prompt: str = "q") -> list[str]:
    return [rubric.title for rubric in cache.get(prompt).all]


@pytest.mark.parametrize("scores", [[math.nan], [0, math.inf], [-math.inf, 1], [0, 10**400]], ids=range(4))
def test_scores_that_are_not_finite_are_refused(scores: list[float]) -> None:
    with pytest.raises(ValueError, match="finite"):
        RubricCache().consider("q", Rubric("t", "d"), scores)


@pytest.mark.parametrize("scores", [[], [1], [1, 1], [0, 0.0, False]])
def test_scores_that_do_not_differ_store_nothing_and_leave_the_older_entry(scores: list[float]) -> None:
    cache = RubricCache()
    assert not cache.consider("q", Rubric("t", "new"), scores)
    assert cache.get("q") == AdaptiveRubrics()
    assert cache.consider("q", Rubric("t", "old"), [0, 1])
    assert not cache.consider("q", Rubric("t", "new"), scores)
    assert cache.get("q").positive == (Rubric("t", "old"),)


def test_a_later_rubric_replaces_the_one_of_its_polarity_and_title() -> None:
    cache = RubricCache()
    cache.consider("q", Rubric("t", "old"), [0, 1])
    cache.consider("q", Rubric("t", "flaw", "negative"), [0, 1])
    assert cache.consider("q", Rubric("t", "new"), [0, 0, 1])
    assert cache.get("q") == AdaptiveRubrics((Rubric("t", "new"),), (Rubric("t", "flaw", "negative"),))


def test_the_most_telling_stay_per_polarity_and_the_answer_says_which() -> None:
    cache = RubricCache(max_per_polarity=2)
    assert cache.consider("q", Rubric("small", "d"), [0, 0, 0, 1])
    assert cache.consider("q", Rubric("large", "d"), [0, 0, 1, 1])
    assert cache.consider("q", Rubric("flaw", "d", "negative"), [0, 0, 0, 1])
    assert cache.consider("q", Rubric("medium", "d"), [0, 0, 1])
    assert titles(cache) == ["large", "medium", "flaw"]
    assert not cache.consider("q", Rubric("small again", "d"), [0, 0, 0, 1])
    assert titles(cache) == ["large", "medium", "flaw"]


def test_equal_deviations_are_decided_by_title_also_when_floats_would_differ() -> None:
    cache = RubricCache(max_per_polarity=2)
    for title, scores in (("c", [0, 0, 1]), ("b", [0, 1, 1]), ("a", [1, 0, 1])):
        cache.consider("q", Rubric(title, "d"), scores)
    assert titles(cache) == ["a", "b"]


def test_prompts_are_separate_and_kept_as_hashes_only() -> None:
    cache = RubricCache()
    cache.consider("a secret question", Rubric("t", "d"), [0, 1])
    assert titles(cache, "another question") == []
    assert b"a secret question" not in pickle.dumps(cache)
    assert prompt_key("ü") == hashlib.sha256("ü".encode()).hexdigest()
    assert list(cache._entries) == [prompt_key("a secret question")]


def test_what_get_returned_does_not_change() -> None:
    cache = RubricCache()
    cache.consider("q", Rubric("t", "d"), [0, 1])
    before = cache.get("q")
    cache.consider("q", Rubric("u", "d"), [0, 5])
    assert before == AdaptiveRubrics((Rubric("t", "d"),))


def test_a_cache_pickles_as_its_two_attributes_with_the_population_deviation() -> None:
    cache = RubricCache(max_per_polarity=2)
    rubric = Rubric("t", "d")
    cache.consider("q", rubric, [0, 0, 3, 3])
    copy = pickle.loads(pickle.dumps(cache))
    assert vars(copy)["max_per_polarity"] == 2
    assert set(vars(copy)) == {"max_per_polarity", "_entries"}
    candidate = vars(copy)["_entries"][prompt_key("q")]["positive"]["t"]
    assert candidate == _Candidate(rubric, 1.5)
    assert candidate.__reduce_ex__(2)[2] == [rubric, 1.5]


def test_a_cache_pickled_elsewhere_may_lack_a_polarity() -> None:
    cache = RubricCache()
    vars(cache)["_entries"] = {prompt_key("q"): {"positive": {"t": _Candidate(Rubric("t", "d"), 1.0)}}}
    assert titles(cache) == ["t"]
    assert cache.consider("q", Rubric("f", "d", "negative"), [0, 1])
    assert titles(cache) == ["t", "f"]


@given(
    st.lists(
        st.tuples(st.sampled_from("abcde"), st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=4)), max_size=12
    ),
    st.integers(1, 3),
    st.randoms(use_true_random=False),
)
def test_a_cache_holds_its_limit_and_ignores_the_order_of_scores(
    considered: list[tuple[str, list[float]]], most: int, random: Any
) -> None:
    cache, other = RubricCache(max_per_polarity=most), RubricCache(max_per_polarity=most)
    for title, scores in considered:
        kept = cache.consider("q", Rubric(title, "d"), scores)
        assert kept == (title in titles(cache) and len(set(scores)) > 1)
        random.shuffle(scores)
        other.consider("q", Rubric(title, "d"), scores)
        assert titles(cache) == titles(other)
        assert len(titles(cache)) <= most


# --- generation


async def generate(server: ModelServer, **options: Any) -> AdaptiveRubrics:
    given: dict[str, Any] = {
        "question": "q?",
        "ground_truth": "truth",
        "responses": ["one", "two"],
        "judge": judge_at(server, max_retries=0),
        **options,
    }
    return await generate_adaptive_rubrics(**given)


async def test_generated_rubrics_are_binary_with_stripped_texts(
    model_server: ModelServer, caplog: pytest.LogCaptureFixture
) -> None:
    positive = [{"title": " Good ", "description": " is good\n", "extra": 1}]
    negative = [{"title": "Bad", "description": "is bad"}, {"title": "Worse", "description": "is worse"}]
    script_answers(model_server, {"question": "q?", "positive_rubrics": positive, "negative_rubrics": negative})
    with caplog.at_level(logging.INFO, logger="benchmax.rewards"):
        generated = await generate(model_server)
    assert generated == AdaptiveRubrics(
        (Rubric("Good", "is good"),), (Rubric("Bad", "is bad", "negative"), Rubric("Worse", "is worse", "negative"))
    )
    assert [record.getMessage() for record in caplog.records] == ["adaptive_rubrics.generated positive=1 negative=2"]


async def test_missing_lists_are_empty(model_server: ModelServer) -> None:
    script_answers(model_server, {})
    assert await generate(model_server) == AdaptiveRubrics()


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ({"positive_rubrics": {}}, "must be a list"),
        ({"negative_rubrics": None}, "must be a list"),
        ({"positive_rubrics": ["x"]}, r"positive_rubrics\[0\] must be an object"),
        ({"negative_rubrics": [{"title": " ", "description": "d"}]}, r"negative_rubrics\[0\].*'title'"),
        ({"negative_rubrics": [{"title": "t"}]}, "'description'"),
        ({"positive_rubrics": [{"title": 5, "description": "d"}]}, "'title'"),
    ],
)
async def test_an_answer_of_another_form_is_a_judge_error(model_server: ModelServer, answer: Any, text: str) -> None:
    script_answers(model_server, answer)
    with pytest.raises(JudgeError, match=f"adaptive rubric generation failed.*{text}"):
        await generate(model_server)


async def test_an_error_of_the_request_passes_unchanged(model_server: ModelServer) -> None:
    model_server.answer = lambda received: error(400, None)
    with pytest.raises(JudgeError, match=r"request failed \(adaptive-rubric-generation") as caught:
        await generate(model_server)
    assert "generation failed" not in str(caught.value)


# --- generation and caching


async def generate_and_cache(server: ModelServer, cache: RubricCache, **options: Any) -> AdaptiveRubrics:
    given: dict[str, Any] = {
        "question": "q?",
        "ground_truth": "truth",
        "responses": ["good", "bad"],
        "judge": judge_at(server, max_retries=0),
        "cache": cache,
        **options,
    }
    return await generate_and_cache_adaptive_rubrics(**given)


def generating(*titles: str) -> Any:
    def decide(prompt: str) -> Any:
        if "positive_rubrics" in prompt:
            return {"positive_rubrics": [{"title": title, "description": "new"} for title in titles]}
        return {"score": int("\ngood\n" in prompt)}

    return decide


@pytest.mark.parametrize("responses", [[], ["one"], ["one", " ", ""]])
async def test_fewer_than_two_visible_responses_return_the_cache_unasked(
    model_server: ModelServer, responses: list[str]
) -> None:
    cache = RubricCache()
    cache.consider("q?", Rubric("old", "d"), [0, 1])
    assert await generate_and_cache(model_server, cache, responses=responses) == cache.get("q?")
    assert titles(cache, "q?") == ["old"]
    assert model_server.requests == []


async def test_generated_rubrics_that_tell_the_responses_apart_are_kept(model_server: ModelServer) -> None:
    answer_by_prompt(model_server, generating("new"))
    cache = RubricCache()
    kept = await generate_and_cache(model_server, cache, responses=[" good ", "", "bad"])
    assert kept == cache.get("q?") == AdaptiveRubrics((Rubric("new", "new"),))
    assert len(model_server.requests) == 3
    assert all("truth" in prompt for prompt in prompts_of(model_server))


async def test_existing_and_cached_rubrics_are_shown_and_the_later_of_a_title_counts(
    model_server: ModelServer,
) -> None:
    answer_by_prompt(model_server, generating())
    cache = RubricCache()
    cache.consider("q?", Rubric("same", "cached"), [0, 1])
    cache.consider("q?", Rubric("flaw", "cached", "negative"), [0, 1])
    existing = [Rubric("same", "existing"), Rubric("same", "flaw", "negative"), Rubric("other", "existing")]
    await generate_and_cache(model_server, cache, existing_rubrics=existing)
    block = "Existing Rubrics:\nPositive rubrics:\n- same: cached\n- other: existing\n"
    assert f"{block}Negative rubrics:\n- same: flaw\n- flaw: cached\n" in prompts_of(model_server)[0]


async def test_rubrics_are_evaluated_in_turn_and_each_on_all_responses_at_once(model_server: ModelServer) -> None:
    decide = generating("first", "second")

    def held_unless_generating(received: Received) -> Reply:
        prompt = prompt_of(received)
        return Reply(answer(decide(prompt)).body, held="Title: first" in prompt)

    model_server.answer = held_unless_generating
    task = asyncio.create_task(generate_and_cache(model_server, RubricCache()))
    await asyncio.to_thread(model_server.wait_for_requests, 3)
    assert not any("Title: second" in prompt for prompt in prompts_of(model_server))
    model_server.release()
    assert [rubric.title for rubric in (await task).all] == ["first", "second"]
    assert len(model_server.requests) == 5


async def test_a_failing_evaluation_fails_the_whole(model_server: ModelServer) -> None:
    decide = generating("new")
    answer_by_prompt(model_server, lambda prompt: "prose" if "Title:" in prompt else decide(prompt))
    with pytest.raises(JudgeError, match="evaluation failed"):
        await generate_and_cache(model_server, RubricCache())
