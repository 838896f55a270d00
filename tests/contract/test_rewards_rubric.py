"""Rubrics, and a judge's score of one response."""

from __future__ import annotations

import json
import logging
import math
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmax.rewards import JudgeError, RankingAnchor, Rubric, RubricEvaluation, evaluate_single_rubric
from tests.contract.loopback import ModelServer, error
from tests.contract.rewards_lab import answer_by_prompt, judge_at, prompts_of, script_answers

VECTORS = json.loads((Path(__file__).parents[1] / "fixtures" / "contract" / "rubric.json").read_text())


def rubric_of(vector: dict[str, Any]) -> Rubric:
    score_map = vector["score_map"] and {int(score): meaning for score, meaning in vector["score_map"].items()}
    return Rubric("t", "d", vector["polarity"], score_map)


@pytest.mark.parametrize("vector", VECTORS)
def test_recorded_allowed_scores_and_rewards(vector: dict[str, Any]) -> None:
    rubric = rubric_of(vector)
    assert rubric.allowed_scores == tuple(vector["allowed"])
    assert [rubric.reward_for(score) for score in vector["allowed"]] == pytest.approx(vector["rewards"], abs=1e-9)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"title": " "}, "title"),
        ({"title": None}, "title"),
        ({"description": ""}, "description"),
        ({"polarity": "neutral"}, "polarity"),
        ({"score_map": {}}, "at least 2"),
        ({"score_map": {1: "a"}}, "at least 2"),
        ({"score_map": {2**53: "a", 2**53 + 1: "b"}}, "at least 2 different"),
        ({"score_map": {0: "a", math.inf: "b"}}, "finite"),
        ({"score_map": {0: "a", math.nan: "b"}}, "finite"),
        ({"score_map": {0: "a", 10**400: "b"}}, "finite"),
        ({"score_map": {0: "a", 1: " "}}, "meaning of 1"),
        ({"score_map": {0: "a", 1: None}}, "meaning of 1"),
    ],
)
def test_what_a_rubric_refuses(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Rubric(**{"title": "t", "description": "d", **arguments})


@pytest.mark.parametrize("score_map", [{"0": "a", "1": "b"}, {False: "a", 1: "b"}, {None: "a", 1: "b"}, [0, 1], "01"])
def test_scores_that_are_no_numbers_are_a_type_error(score_map: Any) -> None:
    with pytest.raises(TypeError, match="score"):
        Rubric("t", "d", score_map=score_map)


def test_allowed_scores_are_sorted_floats() -> None:
    allowed = Rubric("t", "d", score_map={5: "c", -1: "a", 0.5: "b"}).allowed_scores
    assert allowed == (-1.0, 0.5, 5.0)
    assert all(isinstance(score, float) for score in allowed)


@pytest.mark.parametrize("raw", ["1", None, True, [1]])
def test_the_reward_of_what_is_no_number_is_a_type_error(raw: Any) -> None:
    with pytest.raises(TypeError, match="number"):
        Rubric("t", "d").reward_for(raw)


@pytest.mark.parametrize("raw", [0.5, 2, -1, math.nan, math.inf])
def test_the_reward_of_a_score_that_is_not_allowed_is_a_value_error(raw: float) -> None:
    with pytest.raises(ValueError, match="one of"):
        Rubric("t", "d").reward_for(raw)


SCORES = st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2, max_size=6, unique=True)


@given(SCORES)
def test_rewards_are_bounded_monotone_and_mirrored_by_the_polarity(scores: list[float]) -> None:
    positive = Rubric("t", "d", score_map=dict.fromkeys(scores, "x"))
    negative = Rubric("t", "d", "negative", dict.fromkeys(scores, "x"))
    rewards = [positive.reward_for(score) for score in positive.allowed_scores]
    assert rewards == sorted(rewards)
    assert (rewards[0], rewards[-1]) == (0.0, 1.0)
    mirrored = [1 - negative.reward_for(score) for score in positive.allowed_scores]
    assert mirrored == pytest.approx(rewards, abs=1e-9)


def test_a_score_map_is_copied() -> None:
    score_map: dict[float, str] = {0: "a", 1: "b"}
    rubric = Rubric("t", "d", score_map=score_map)
    score_map[2] = "c"
    assert rubric.allowed_scores == (0.0, 1.0)


def test_rubrics_and_anchors_pickle_as_the_lists_of_their_fields() -> None:
    rubric = Rubric("t", "d", "negative", {0: "a", 2: "b"})
    anchor = RankingAnchor("r", 0.5, "l")
    assert pickle.loads(pickle.dumps([rubric, anchor])) == [rubric, anchor]
    states: list[Any] = [value.__reduce_ex__(2)[2] for value in (rubric, anchor)]
    assert states == [["t", "d", "negative", {0: "a", 2: "b"}], ["r", 0.5, "l"]]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"response": " "}, "response"),
        ({"response": None}, "response"),
        ({"score": -0.1}, r"\[0, 1\]"),
        ({"score": 1.1}, r"\[0, 1\]"),
        ({"score": math.nan}, r"\[0, 1\]"),
        ({"score": "1"}, r"\[0, 1\]"),
        ({"score": True}, r"\[0, 1\]"),
        ({"label": ""}, "label"),
    ],
)
def test_what_an_anchor_refuses(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        RankingAnchor(**{"response": "r", "score": 0.5, **arguments})


# --- one response


async def evaluate(server: ModelServer, rubric: Rubric, **options: Any) -> RubricEvaluation:
    given: dict[str, Any] = {"question": "q?", "response": "the response", "judge": judge_at(server), **options}
    return await evaluate_single_rubric(rubric, **given)


async def test_the_raw_score_is_returned_and_not_its_reward(model_server: ModelServer) -> None:
    script_answers(model_server, {"score": 2, "reasoning": "because"})
    rubric = Rubric("t", "d", "negative", {0: "a", 2: "b", 5: "c"})
    evaluation = await evaluate(model_server, rubric)
    assert evaluation == RubricEvaluation(2.0, "because", '{"score": 2, "reasoning": "because"}')


async def test_a_missing_reasoning_is_empty(model_server: ModelServer) -> None:
    script_answers(model_server, {"score": 1.0})
    assert (await evaluate(model_server, Rubric("t", "d"))).reasoning == ""


async def test_the_request_id_is_the_title_in_lower_case_with_dashes_for_spaces(model_server: ModelServer) -> None:
    labels = []

    class Noting:
        async def headers_for_request(self, context: Any) -> Mapping[str, str]:
            labels.append(context.rollout_id)
            return {}

    script_answers(model_server, {"score": 1})
    judge = judge_at(model_server)
    await evaluate(model_server, Rubric("Is  VERY\tClear!", "d"), judge=type(judge)("m", judge.base_url, Noting()))
    assert labels == ["rubric:is-very-clear!"]


@pytest.mark.parametrize("ground_truth", [None, " \n"])
async def test_a_blank_ground_truth_is_not_shown(model_server: ModelServer, ground_truth: str | None) -> None:
    script_answers(model_server, {"score": 1})
    await evaluate(model_server, Rubric("t", "d"), ground_truth=ground_truth)
    assert "reference" not in prompts_of(model_server)[0]


async def test_question_response_and_ground_truth_are_shown(model_server: ModelServer) -> None:
    script_answers(model_server, {"score": 1})
    await evaluate(model_server, Rubric("t", "d"), ground_truth="the truth")
    for text in ("q?", "the response", "the truth"):
        assert text in prompts_of(model_server)[0]


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ({"score": 0.5}, "not one of"),
        ({"score": 2}, "not one of"),
        ({"score": "1"}, "finite number"),
        ({"score": True}, "finite number"),
        ({"score": None}, "finite number"),
        ({"score": [1]}, "finite number"),
        ('{"score": NaN}', "finite number"),
        ('{"score": Infinity}', "finite number"),
        ('{"score": 1' + "0" * 400 + "}", "finite number"),
        ({"reasoning": "no score"}, "no 'score'"),
        ({"score": 1, "reasoning": 5}, "'reasoning' must be a string"),
        ({"score": 1, "reasoning": None}, "'reasoning' must be a string"),
        ("I give it a 1.", "valid JSON object"),
        ("", "empty response"),
    ],
)
async def test_an_answer_of_another_form_is_a_judge_error_with_title(
    model_server: ModelServer, answer: Any, text: str
) -> None:
    script_answers(model_server, answer)
    with pytest.raises(JudgeError, match=f"'My title'.*evaluation failed.*{text}") as caught:
        await evaluate(model_server, Rubric("My title", "d"))
    assert caught.value.__cause__ is not None
    assert len(model_server.requests) == 1


async def test_a_failing_request_is_a_judge_error_with_title_logged_with_its_traceback(
    model_server: ModelServer, caplog: pytest.LogCaptureFixture
) -> None:
    model_server.answer = lambda received: error(400, None)
    with pytest.raises(JudgeError, match=r"'My title'.*evaluation failed.*request failed"):
        await evaluate(model_server, Rubric("My title", "d"))
    (record,) = [record for record in caplog.records if record.name == "benchmax.rewards.rubric"]
    assert record.levelno == logging.ERROR
    assert record.exc_info is not None
    assert "My title" in record.getMessage()


@pytest.mark.parametrize("options", [{"judge": None}, {"response": 7}])
async def test_wrong_arguments_are_judge_errors_too(model_server: ModelServer, options: dict[str, Any]) -> None:
    with pytest.raises(JudgeError, match="evaluation failed"):
        await evaluate(model_server, Rubric("t", "d"), **options)
    wrong: Any = "no rubric"
    with pytest.raises(JudgeError, match="evaluation failed"):
        await evaluate(model_server, wrong)
    assert model_server.requests == []


async def test_the_verdict_is_logged_on_one_line_unless_declined(
    model_server: ModelServer, caplog: pytest.LogCaptureFixture
) -> None:
    answer_by_prompt(model_server, lambda prompt: {"score": 1, "reasoning": "two\nlines"})
    with caplog.at_level(logging.INFO, logger="benchmax.rewards"):
        await evaluate(model_server, Rubric("My title", "d", "negative"))
        await evaluate(model_server, Rubric("My title", "d"), log_result=False)
    (record,) = caplog.records
    assert record.levelno == logging.INFO
    text = "rubric.evaluated title='My title' polarity=negative score=1.0 reasoning='two\\nlines'"
    assert record.getMessage() == text
