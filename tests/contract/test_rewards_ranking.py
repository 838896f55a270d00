"""A judge's ranking of responses, and what its ranks are worth."""

from __future__ import annotations

import json
import logging
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmax.rewards import JudgeError, RankingAnchor, Rubric, RubricRanking, evaluate_rubric_ranking
from benchmax.rewards.ranking_scores import anchored_scale, ground_truth_scale, plain_scale, positions_of
from tests.contract.loopback import ModelServer, error
from tests.contract.rewards_lab import answer_by_prompt, judge_at, prompts_of, script_answers

VECTORS = json.loads((Path(__file__).parents[1] / "fixtures" / "contract" / "ranking.json").read_text())


async def rank(server: ModelServer, responses: Any, **options: Any) -> RubricRanking:
    given: dict[str, Any] = {"question": "q?", "judge": judge_at(server), **options}
    return await evaluate_rubric_ranking(Rubric("My title", "d"), responses=responses, **given)


def anchors_of(*scores: float) -> list[RankingAnchor]:
    return [RankingAnchor(f"anchor {score}", score) for score in scores]


async def test_recorded_rankings(model_server: ModelServer) -> None:
    for vector in VECTORS:
        script_answers(model_server, {"ranking": vector["judge_ranking"]})
        result = await rank(
            model_server,
            vector["responses"],
            ground_truth=vector["ground_truth"],
            anchors=anchors_of(*vector["anchors"]),
            below_ground_truth_ceiling=vector["below_ground_truth_ceiling"],
        )
        assert result.scores == pytest.approx(vector["scores"], abs=1e-9), vector
        assert [list(tier) for tier in result.ranking] == vector["ranking"], vector


@pytest.mark.parametrize(
    ("tiers", "responses", "options", "scores"),
    [
        ([[0], [1, 2]], 3, {}, (1.0, 0.25, 0.25)),
        ([[0, 1]], 2, {}, (0.5, 0.5)),
        ([[0], [3], [1], [2]], 3, {"ground_truth": "truth"}, (1.0, 0.15, 0.0)),
        ([[3], [1], [2], [0]], 2, {"anchors": anchors_of(0.4, 0.7)}, (0.0, 0.55)),
        ([[0], [3], [1], [4], [2]], 3, {"anchors": anchors_of(0.4, 0.8)}, (1.0, 1.6 / 3, 0.0)),
        ([[1], [0]], 1, {"ground_truth": "truth"}, (0.0,)),
        ([[0], [1]], 1, {"ground_truth": "truth"}, (1.0,)),
        ([[0, 1]], 1, {"ground_truth": "truth"}, (0.5,)),
        ([[2], [0], [1]], 2, {"ground_truth": "truth", "below_ground_truth_ceiling": 1.0}, (0.5, 0.0)),
        ([[0, 1], [2]], 2, {"anchors": anchors_of(0.3)}, (0.3 + 0.7 * 1.5 / 2, 0.3 + 0.7 * 1.5 / 2)),
    ],
)
async def test_worked_values(
    model_server: ModelServer, tiers: Any, responses: int, options: Any, scores: tuple[float, ...]
) -> None:
    script_answers(model_server, {"ranking": tiers})
    result = await rank(model_server, [f"answer {number}" for number in range(responses)], **options)
    assert result.scores == pytest.approx(scores, abs=1e-9)


# --- arguments


@pytest.mark.parametrize("ceiling", [-0.1, 1.1, math.nan])
async def test_a_ceiling_outside_of_the_unit_interval_is_refused_before_any_request(
    model_server: ModelServer, ceiling: float
) -> None:
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        await rank(model_server, ["a", "b"], below_ground_truth_ceiling=ceiling)
    assert model_server.requests == []


async def test_an_anchor_of_another_type_is_refused(model_server: ModelServer) -> None:
    with pytest.raises(TypeError, match=r"anchors\[1\] must be a RankingAnchor"):
        await rank(model_server, ["a", "b"], anchors=[*anchors_of(0.5), ("b", 0.6)])


async def test_anchors_have_to_go_from_worst_to_best(model_server: ModelServer) -> None:
    with pytest.raises(ValueError, match="worst to best"):
        await rank(model_server, ["a", "b"], anchors=anchors_of(0.5, 0.4))
    script_answers(model_server, {"ranking": [[0, 1, 2, 3]]})
    await rank(model_server, ["a", "b"], anchors=anchors_of(0.5, 0.5))


async def test_a_ground_truth_and_anchors_exclude_each_other_unless_it_is_blank(model_server: ModelServer) -> None:
    with pytest.raises(ValueError, match="not both"):
        await rank(model_server, ["a", "b"], ground_truth="truth", anchors=anchors_of(0.5))
    script_answers(model_server, {"ranking": [[0, 1, 2]]})
    await rank(model_server, ["a", "b"], ground_truth=" ", anchors=anchors_of(0.5))


# --- what is asked


async def test_without_a_visible_response_all_score_zero_unasked(model_server: ModelServer) -> None:
    result = await rank(model_server, ["", None, " \n"], ground_truth="truth")
    assert result == RubricRanking((0.0, 0.0, 0.0), (), "", "")
    assert await rank(model_server, [], anchors=anchors_of(0.5)) == RubricRanking((), (), "", "")
    assert model_server.requests == []


async def test_a_sole_visible_response_without_reference_scores_one_unasked(model_server: ModelServer) -> None:
    result = await rank(model_server, [None, "only", ""], ground_truth=" ")
    assert (result.scores, result.ranking) == ((0.0, 1.0, 0.0), ((0,),))
    assert model_server.requests == []


async def test_blank_responses_score_zero_and_are_not_shown(model_server: ModelServer) -> None:
    script_answers(model_server, {"ranking": [[1], [0]]})
    result = await rank(model_server, ["", " first ", None, "second"])
    assert result.scores == (0.0, 0.0, 0.0, 1.0)
    assert result.ranking == ((1,), (0,))


async def test_items_are_responses_then_the_stripped_reference_and_nothing_marks_it(model_server: ModelServer) -> None:
    answer_by_prompt(model_server, lambda prompt: {"ranking": [[0, 1, 2]]})
    await rank(model_server, [" one ", "two"], ground_truth=" three ")
    await rank(model_server, ["one", "two", "three"])
    with_truth, without = prompts_of(model_server)
    assert with_truth == without


async def test_items_are_responses_then_anchors_in_the_given_order(model_server: ModelServer) -> None:
    answer_by_prompt(model_server, lambda prompt: {"ranking": [[0, 1, 2, 3]]})
    anchors = [RankingAnchor(" three ", 0.1, "worst"), RankingAnchor("four", 0.9)]
    await rank(model_server, ["one", "two"], anchors=anchors)
    await rank(model_server, ["one", "two", "three", "four"])
    with_anchors, without = prompts_of(model_server)
    assert with_anchors == without


async def test_the_request_id_names_the_rubric(model_server: ModelServer) -> None:
    labels = []

    class Noting:
        async def headers_for_request(self, context: Any) -> dict[str, str]:
            labels.append(context.rollout_id)
            return {}

    script_answers(model_server, {"ranking": [[0, 1]]})
    judge = judge_at(model_server)
    await rank(model_server, ["a", "b"], judge=type(judge)("m", judge.base_url, Noting()))
    assert labels == ["rubric-ranking:my-title"]


# --- what is answered


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ({}, "tiers"),
        ({"ranking": []}, "tiers"),
        ({"ranking": None}, "tiers"),
        ({"ranking": {"0": 1}}, "tiers"),
        ({"ranking": [0, 1, 2]}, "tiers"),
        ({"ranking": [[0], 1, [2]]}, "tiers"),
        ({"ranking": [[0, 1, 2], []]}, "tiers"),
        ({"ranking": [[0], [1], ["2"]]}, "index from 0 to 2"),
        ({"ranking": [[0], [1], [2.0]]}, "index from 0 to 2"),
        ({"ranking": [[0], [True], [2]]}, "index from 0 to 2"),
        ({"ranking": [[0], [1], [3]]}, "index from 0 to 2"),
        ({"ranking": [[0], [1], [-1]]}, "index from 0 to 2"),
        ({"ranking": [[0], [1], [1, 2]]}, "repeated"),
        ({"ranking": [[0], [2]]}, "omitted"),
        ({"ranking": [[0], [1], [2]], "reasoning": 5}, "'reasoning' must be a string"),
        ("The second is best.", "valid JSON object"),
    ],
)
async def test_an_answer_of_another_form_is_a_logged_judge_error(
    model_server: ModelServer, caplog: pytest.LogCaptureFixture, answer: Any, text: str
) -> None:
    script_answers(model_server, answer)
    with pytest.raises(JudgeError, match=f"'My title'.*ranking failed.*{text}") as caught:
        await rank(model_server, ["a", "b", "c"])
    assert caught.value.__cause__ is not None
    assert [record.levelno for record in caplog.records if record.exc_info] == [logging.ERROR]
    assert len(model_server.requests) == 1


async def test_a_failing_request_is_a_judge_error(model_server: ModelServer) -> None:
    model_server.answer = lambda received: error(400, None)
    with pytest.raises(JudgeError, match=r"ranking failed.*request failed"):
        await rank(model_server, ["a", "b"])


async def test_reasoning_and_raw_answer_are_kept(model_server: ModelServer) -> None:
    script_answers(model_server, {"ranking": [[0], [1]], "reasoning": "because"})
    result = await rank(model_server, ["a", "b"])
    assert (result.reasoning, json.loads(result.raw_response)["ranking"]) == ("because", [[0], [1]])


async def test_the_polarity_does_not_flip_the_scores(model_server: ModelServer) -> None:
    script_answers(model_server, {"ranking": [[0], [1]]})
    negative = Rubric("t", "d", "negative")
    result = await evaluate_rubric_ranking(negative, question="q", responses=["a", "b"], judge=judge_at(model_server))
    assert result.scores == (1.0, 0.0)


async def test_the_ranking_is_logged_with_its_anchors_unless_declined(
    model_server: ModelServer, caplog: pytest.LogCaptureFixture
) -> None:
    answer_by_prompt(model_server, lambda prompt: {"ranking": [[0], [1], [2]], "reasoning": "x\ny"})
    anchors = [RankingAnchor("a", 0.25, "low"), RankingAnchor("b", 0.5)]
    with caplog.at_level(logging.INFO, logger="benchmax.rewards"):
        await rank(model_server, ["r"], anchors=anchors)
        await rank(model_server, ["r"], anchors=anchors, log_result=False)
    (record,) = caplog.records
    assert record.getMessage() == (
        "rubric.ranked title='My title' polarity=positive ranking=((0,), (1,), (2,)) scores=(1.0,) "
        "anchors=[('low', 0.25), ('anchor@0.5', 0.5)] reasoning='x\\ny'"
    )


# --- the formulas

CEILINGS = st.floats(0, 1)
UNIT = st.floats(0, 1)


@st.composite
def tiers(draw: st.DrawFn, least: int = 1) -> list[list[int]]:
    count = draw(st.integers(least, 9))
    order = draw(st.permutations(range(count)))
    cuts = sorted(draw(st.sets(st.integers(1, max(1, count - 1)))) | {0, count})
    return [list(order[start:end]) for start, end in pairwise(cuts) if end > start]


@given(tiers())
def test_positions_are_mean_ranks_shared_by_a_tier(ranking: list[list[int]]) -> None:
    positions = positions_of(ranking)
    count = len(positions)
    assert sum(positions) == count * (count - 1) / 2
    for position in positions:
        better = sum(other < position for other in positions)
        equal = sum(other == position for other in positions)
        assert position == better + (equal - 1) / 2
    assert sorted({positions[tier[0]] for tier in ranking}) == [positions[tier[0]] for tier in ranking]


def is_monotone(positions: list[float], scores: list[float]) -> bool:
    pairs = sorted(zip(positions, scores, strict=True))
    return all(left_score >= right_score - 1e-12 for (_, left_score), (_, right_score) in pairwise(pairs))


@given(tiers(), st.data())
def test_scores_are_bounded_monotone_and_follow_a_permutation_of_the_items(
    ranking: list[list[int]], data: st.DataObject
) -> None:
    positions = positions_of(ranking)
    count = len(positions)
    relabel = data.draw(st.permutations(range(count)))
    moved = positions_of([[relabel[index] for index in tier] for tier in ranking])
    assert [moved[relabel[index]] for index in range(count)] == positions

    last = count - 1
    references = data.draw(st.lists(st.integers(0, last), min_size=1, max_size=4, unique=True))
    known = [(positions[index], data.draw(UNIT)) for index in references]
    for scale in (
        plain_scale(last),
        ground_truth_scale(last, positions[references[0]], data.draw(st.floats(0, 0.5))),
        anchored_scale(last, known),
    ):
        scores = [scale(position) for position in positions]
        assert all(-1e-12 <= score <= 1 + 1e-12 for score in scores)
        assert is_monotone(positions, scores)
    assert [anchored_scale(last, known[::-1])(position) for position in positions] == [
        anchored_scale(last, known)(position) for position in positions
    ]


@given(tiers(least=2))
def test_without_a_reference_scores_average_a_half(ranking: list[list[int]]) -> None:
    positions = positions_of(ranking)
    scale = plain_scale(len(positions) - 1)
    assert sum(map(scale, positions)) / len(positions) == pytest.approx(0.5)


@given(tiers(least=2), CEILINGS)
def test_a_ground_truth_divides_the_scores_at_a_half_and_at_the_ceiling(
    ranking: list[list[int]], ceiling: float
) -> None:
    positions = positions_of(ranking)
    truth = positions[-1]
    scale = ground_truth_scale(len(positions) - 1, truth, ceiling)
    for position in positions[:-1]:
        score = scale(position)
        if position < truth:
            assert 0.5 < score <= 1
        elif position == truth:
            assert score == 0.5
        else:
            assert 0 <= score <= ceiling
    if truth > 0:
        assert scale(0) == 1.0
    if truth < len(positions) - 1:
        assert scale(len(positions) - 1) == 0.0


@given(st.lists(st.tuples(st.integers(0, 8), UNIT), min_size=1, max_size=5, unique_by=lambda pair: pair[0]))
def test_anchors_in_agreement_with_the_judge_keep_their_scores(known: list[tuple[float, float]]) -> None:
    scores = sorted((score for _, score in known), reverse=True)
    agreed = [(float(place), score) for (place, _), score in zip(sorted(known), scores, strict=True)]
    scale = anchored_scale(9, agreed)
    for place, score in agreed:
        assert scale(place) == pytest.approx(score, abs=1e-12)


def test_an_anchor_that_passes_a_better_one_takes_its_place() -> None:
    scale = anchored_scale(4, [(1, 0.4), (3, 0.8)])
    assert [scale(position) for position in (0, 1, 2, 4)] == pytest.approx([1.0, 0.8, 1.6 / 3, 0.0])


def test_anchors_at_the_same_place_count_as_the_larger() -> None:
    assert anchored_scale(2, [(1, 0.2), (1, 0.6)])(1) == 0.6
    assert anchored_scale(3, [(1, 0.5), (1, 0.5), (2, 0.1)])(1.5) == pytest.approx(0.3)


def test_an_anchor_at_the_top_or_bottom_is_the_end_of_the_scale() -> None:
    assert anchored_scale(1, [(0, 0.7)])(0) == 0.7
    assert anchored_scale(1, [(1, 0.7)])(1) == 0.7
    assert anchored_scale(2, [(0, 0.9), (2, 0.3)])(2) == 0.0
