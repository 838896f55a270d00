"""What holds for the rewards of any group: bounds, order, and that siblings may come in any order."""

from __future__ import annotations

import asyncio
import json
import re
from itertools import groupby, pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from benchmax.rewards import (
    NgramDiversityConfig,
    RankingAnchor,
    Rubric,
    clip01,
    evaluate_rubric_ranking,
    overlap_reward,
    rank_group_rubrics,
    scale_by_diversity,
    score_group_rubrics,
    tool_call_efficiency,
)
from tests.contract.rewards_lab import result_of

QUALITY = Rubric("Quality", "d", score_map={number: str(number) for number in range(4)})
FLAW = Rubric("Flaw", "d", "negative")


class Ideal:
    """A judge that sees the worth of each text, which is the number in it, and never errs."""

    asked = 0

    async def request_json(self, prompt: str, *, request_id: str, **_: Any) -> tuple[dict[str, Any], str]:
        self.asked += 1
        worths = [int(found) for found in re.findall("worth ([0-9]+)", prompt)]
        if request_id.startswith("rubric:quality"):
            answer: dict[str, Any] = {"score": min(worths[-1], 3)}
        elif request_id.startswith("rubric:"):
            answer = {"score": int(worths[-1] == 0)}
        else:
            best_first = sorted(range(len(worths)), key=lambda index: -worths[index])
            answer = {"ranking": [list(tier) for _, tier in groupby(best_first, key=lambda index: worths[index])]}
        return answer, json.dumps(answer)


def said(worth: int | None) -> str:
    return "" if worth is None else f"worth {worth}"


def ranked(worths: list[int | None], **options: Any) -> list[float]:
    judge: Any = Ideal()
    responses = [said(worth) for worth in worths]
    return list(
        result_of(evaluate_rubric_ranking(QUALITY, question="q", responses=responses, judge=judge, **options)).scores
    )


def run(scorer: Any, worths: list[int | None], **options: Any) -> list[dict[str, float]]:
    ids = [f"r{number}" for number in range(len(worths))]
    judge: Any = Ideal()
    given_options = {"ground_truth": None, "question": "q", "rubrics": [QUALITY, FLAW], **options}
    found: list[dict[str, float]] = asyncio.run(scorer(ids, list(map(said, worths)), judge=judge, **given_options))
    return found


WORTHS = st.lists(st.none() | st.integers(0, 5), min_size=1, max_size=7)


@st.composite
def references(draw: st.DrawFn) -> dict[str, Any]:
    """Draw what responses are ranked along with: nothing, a ground truth, or anchors from worst to best."""
    kind = draw(st.sampled_from(["none", "truth", "anchors"]))
    if kind == "truth":
        # up to a half: above it, a response below the reference would be worth more than the reference
        return {"ground_truth": said(draw(st.integers(0, 5))), "below_ground_truth_ceiling": draw(st.floats(0, 0.5))}
    if kind == "anchors":
        scores = sorted(draw(st.lists(st.floats(0, 1), min_size=1, max_size=3)))
        return {"anchors": [RankingAnchor(said(draw(st.integers(0, 5))), score) for score in scores]}
    return {}


@given(WORTHS, references(), st.data())
def test_ranking_scores_follow_the_order_of_the_responses(
    worths: list[int | None], options: dict[str, Any], data: st.DataObject
) -> None:
    scores = ranked(worths, **options)
    order = data.draw(st.permutations(range(len(worths))))
    assert ranked([worths[index] for index in order], **options) == [scores[index] for index in order]


@given(WORTHS, references())
def test_ranking_scores_are_bounded_monotone_and_equal_for_equals(
    worths: list[int | None], options: dict[str, Any]
) -> None:
    scores = ranked(worths, **options)
    assert all(0 <= score <= 1 for score in scores)
    pairs = sorted((worth, score) for worth, score in zip(worths, scores, strict=True) if worth is not None)
    for (worth, score), (other_worth, other_score) in pairwise(pairs):
        assert score <= other_score + 1e-12
        if worth == other_worth:
            assert score == other_score


@given(WORTHS, references(), st.integers(0, 7))
def test_a_blank_response_changes_the_score_of_no_other(
    worths: list[int | None], options: dict[str, Any], place: int
) -> None:
    place %= len(worths) + 1
    scores = ranked([*worths[:place], None, *worths[place:]], **options)
    assert scores.pop(place) == 0.0
    assert scores == ranked(worths, **options)


@given(WORTHS, st.integers(0, 5))
def test_a_ground_truth_is_worth_a_half(worths: list[int | None], truth: int) -> None:
    for worth, score in zip(worths, ranked(worths, ground_truth=said(truth)), strict=True):
        if worth is None:
            assert score == 0
        elif worth == truth:
            assert score == 0.5
        else:
            assert (score > 0.5) == (worth > truth)


@given(WORTHS, st.booleans(), st.data())
def test_group_rewards_are_bounded_and_follow_the_order_of_the_siblings(
    worths: list[int | None], ranks: bool, data: st.DataObject
) -> None:
    scorer: Any = rank_group_rubrics if ranks else score_group_rubrics
    rewards = run(scorer, worths)
    for components in rewards:
        assert set(components) == {"rubric_quality", "rubric_flaw"}
        assert all(0 <= value <= 1 for value in components.values())
    order = data.draw(st.permutations(range(len(worths))))
    assert run(scorer, [worths[index] for index in order]) == [rewards[index] for index in order]


@given(WORTHS)
def test_scores_of_a_group_are_those_of_each_alone(worths: list[int | None]) -> None:
    alone = [run(score_group_rubrics, [worth])[0] for worth in worths]
    assert run(score_group_rubrics, worths) == alone


def test_an_ideal_judge_is_asked_once_per_rubric_for_a_ranking() -> None:
    judge: Any = Ideal()
    asyncio.run(
        rank_group_rubrics(
            ["a", "b", "c"],
            [said(1), said(2), ""],
            ground_truth=None,
            question="q",
            rubrics=[QUALITY, FLAW],
            judge=judge,
        )
    )
    assert judge.asked == 2


TEXTS = st.lists(st.text(alphabet="abc ", max_size=8), min_size=1, max_size=6)


@given(TEXTS, st.data())
def test_rewards_scaled_by_diversity_follow_the_order_of_the_texts_and_never_grow(
    texts: list[str], data: st.DataObject
) -> None:
    rewards: list[dict[str, float]] = [{"a": number, "b": -number} for number in range(len(texts))]
    scaled, _ = result_of(scale_by_diversity(rewards, texts, NgramDiversityConfig()))
    for before, after in zip(rewards, scaled, strict=True):
        assert all(abs(after[name]) <= abs(before[name]) for name in before)
    order = data.draw(st.permutations(range(len(texts))))
    moved, _ = result_of(
        scale_by_diversity([rewards[i] for i in order], [texts[i] for i in order], NgramDiversityConfig())
    )
    assert moved == [scaled[index] for index in order]


NUMBERS = st.floats(allow_nan=False, allow_infinity=False)


@given(NUMBERS, NUMBERS)
def test_clipping_keeps_the_order_and_does_nothing_twice(one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert clip01(low) <= clip01(high)
    assert clip01(clip01(one)) == clip01(one)


@given(st.integers(0, 12), st.floats(0, 1), st.floats(0, 1))
def test_efficiency_keeps_the_order_of_correctness_and_never_exceeds_it(calls: int, one: float, other: float) -> None:
    low, high = sorted((one, other))
    scores = [tool_call_efficiency("<tool_call>" * calls, correctness=correctness) for correctness in (low, high)]
    assert scores[0] <= scores[1]
    assert all(score <= correctness for score, correctness in zip(scores, (low, high), strict=True))


@given(st.text(alphabet="ab", max_size=20), st.text(alphabet="ab", max_size=20), st.floats(0, 1), st.floats(0, 1))
def test_an_overlap_is_kept_whole_or_dropped_and_a_higher_minimum_drops_more(
    completion: str, truth: str, one: float, other: float
) -> None:
    low, high = sorted((one, other))
    kept, strict = (overlap_reward(completion, truth, minimum_overlap=minimum) for minimum in (low, high))
    assert 0 <= strict <= kept <= 1
    assert strict in (0.0, kept)
