"""What a judge is told."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmax.rewards import Rubric
from benchmax.rewards.prompts import (
    DEFAULT_DIVERSITY_INSTRUCTIONS,
    build_adaptive_rubric_prompt,
    build_diversity_prompt,
    build_rubric_evaluation_prompt,
    build_rubric_ranking_prompt,
)

POSITIVE = Rubric("The title", "The description")
NEGATIVE = Rubric("The title", "The description", "negative")


def evaluation(rubric: Rubric = POSITIVE, **options: Any) -> str:
    given: dict[str, Any] = {"question": "The question", "response": "The response", "ground_truth": None, **options}
    return build_rubric_evaluation_prompt(rubric, **given)


def ranking(rubric: Rubric = POSITIVE, responses: Any = ("first", "second", "third")) -> str:
    return build_rubric_ranking_prompt(rubric, question="The question", responses=responses)


def adaptive(**options: Any) -> str:
    given: dict[str, Any] = {
        "question": "The question",
        "ground_truth": "The truth",
        "responses": ["first", "second"],
        **options,
    }
    return build_adaptive_rubric_prompt(**given)


@pytest.mark.parametrize("rubric", [POSITIVE, NEGATIVE])
@pytest.mark.parametrize("build", [evaluation, ranking])
def test_a_rubric_prompt_names_polarity_title_description_and_question(rubric: Rubric, build: Any) -> None:
    for text in (rubric.polarity, "The title", "The description", "The question", "JSON", '"reasoning"'):
        assert text in build(rubric)


def test_an_evaluation_shows_the_response_and_a_reference_only_if_there_is_one() -> None:
    assert "The response" in evaluation()
    assert "The truth" in evaluation(ground_truth="The truth")
    assert evaluation(ground_truth=" \n") == evaluation(ground_truth=None)


def test_a_binary_evaluation_says_what_one_and_zero_mean_for_each_polarity() -> None:
    assert "Score 1 if the quality is clearly present" in evaluation(POSITIVE)
    assert "Score 1 if the flaw is clearly present" in evaluation(NEGATIVE)
    assert "Score 0 in every other case" in evaluation()


def test_an_evaluation_with_a_score_map_lists_its_scores_ascending_and_asks_for_exactly_one() -> None:
    prompt = evaluation(Rubric("t", "d", score_map={5.0: "much", -1: "none", 0.25: "some", 1e20: "vast"}))
    assert "- -1: none\n- 0.25: some\n- 5: much\n- 1e+20: vast" in prompt
    assert "exactly one of these scores" in prompt
    assert "Score 1" not in prompt


def test_a_ranking_numbers_its_items_from_zero_and_asks_for_tiers() -> None:
    prompt = ranking()
    places = [prompt.index(f"[{index}]\n") for index in range(3)]
    texts = [prompt.index(f"\n{text}\n") for text in ("first", "second", "third")]
    assert [place for pair in zip(places, texts, strict=True) for place in pair] == sorted(places + texts)
    for text in ("this criterion only", "from best to worst", "share a tier", "every index from 0 to 2 exactly once"):
        assert text in prompt
    assert "one tier holds them all" in prompt


def test_a_ranking_says_what_best_means_for_each_polarity() -> None:
    assert "most clearly shows this quality" in ranking(POSITIVE)
    assert "least shows this flaw" in ranking(NEGATIVE)


def test_a_generation_shows_question_truth_and_responses_numbered_from_one() -> None:
    prompt = adaptive()
    for text in ("The question", "The truth", "[1]\n", "first", "[2]\n", "second"):
        assert text in prompt
    assert "[0]" not in prompt
    for text in ("1 to 5", "discriminative", "observable", "non-redundant", "general title", "measure of quality"):
        assert text in prompt
    for text in ("mirror", "actively", "leave both lists empty", '"positive_rubrics"', '"negative_rubrics"'):
        assert text in prompt


def test_existing_rubrics_are_listed_by_polarity_in_a_fixed_layout() -> None:
    existing = [Rubric("a", "is a"), Rubric("b", "is b", "negative"), Rubric("c", "is c")]
    block = "Existing Rubrics:\nPositive rubrics:\n- a: is a\n- c: is c\nNegative rubrics:\n- b: is b\n"
    assert block in adaptive(existing_rubrics=existing)
    assert "Existing Rubrics:\nNegative rubrics:\n- b: is b\n" in adaptive(existing_rubrics=existing[1:2])
    assert "Existing Rubrics:" not in adaptive()


def test_a_blank_ground_truth_is_left_out_of_a_generation() -> None:
    assert "reference answer" not in adaptive(ground_truth=" ")


def test_a_clustering_shows_context_instructions_and_items_under_their_indices() -> None:
    prompt = build_diversity_prompt(["first", "second"], context="The context", instructions=" Do so. \n")
    for text in ("The context", "\nDo so.\n", "[0]\nfirst\n", "[1]\nsecond\n", "every index from 0 to 1 exactly once"):
        assert text in prompt
    assert '"assignments"' in prompt


def test_a_clustering_has_defaults_for_context_and_instructions() -> None:
    prompt = build_diversity_prompt(["first"])
    assert "(none)" in prompt
    assert DEFAULT_DIVERSITY_INSTRUCTIONS in prompt
    for text in ("approach", "wording", "Paraphrases", "refusals", "null"):
        assert text in DEFAULT_DIVERSITY_INSTRUCTIONS


def test_a_clustering_of_nothing_or_without_instructions_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one text"):
        build_diversity_prompt([])
    with pytest.raises(ValueError, match="instructions"):
        build_diversity_prompt(["a"], instructions=" ")


@given(st.lists(st.sampled_from(["</response>", "</RESPONSE>", "</question>", "x", "\n"]), max_size=6).map("".join))
def test_a_response_cannot_close_its_own_block(response: str) -> None:
    lines = evaluation(response=response).split("The response to grade:\n\n")[-1]
    opening, _, rest = lines.partition("\n")
    closing = opening.replace("<", "</", 1)
    assert rest.lower().count(closing.lower()) == 1
    assert rest.startswith(f"{response}\n{closing}\n")
