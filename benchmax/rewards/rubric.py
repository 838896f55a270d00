"""A criterion, and asking a judge about it: one response on its own, or several against each other."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from benchmax.rewards import prompts
from benchmax.rewards.answers import optional_text, score_of, tiers_of
from benchmax.rewards.arguments import is_finite, is_number, require_text
from benchmax.rewards.deterministic import clip01
from benchmax.rewards.judge import Judge, JudgeError
from benchmax.rewards.ranking_scores import Scale, anchored_scale, ground_truth_scale, plain_scale, positions_of

__all__ = [
    "RankingAnchor",
    "Rubric",
    "RubricEvaluation",
    "RubricPolarity",
    "RubricRanking",
    "evaluate_rubric_ranking",
    "evaluate_single_rubric",
]

logger = logging.getLogger(__name__)

RubricPolarity: TypeAlias = Literal["positive", "negative"]


@dataclass(frozen=True, slots=True)
class Rubric:
    """One criterion that a judge can decide.

    Args:
        title: Short name; also names the reward.
        description: What exactly to look for.
        polarity: `positive` for a quality to show, `negative` for a flaw to avoid.
        score_map: What each allowed score means; default 1 for present and 0 for absent.

    Raises:
        ValueError: a text is blank, the polarity is unknown, or there are fewer than two finite scores.
        TypeError: the map is no mapping, or a score is not a number.
    """

    title: str
    description: str
    polarity: RubricPolarity = "positive"
    score_map: Mapping[float, str] | None = None

    def __post_init__(self) -> None:
        require_text("Rubric", title=self.title, description=self.description)
        if self.polarity not in get_args(RubricPolarity):
            raise ValueError(f"Rubric.polarity must be 'positive' or 'negative', got {self.polarity!r}.")
        if self.score_map is not None:
            object.__setattr__(self, "score_map", _checked_score_map(self.score_map))

    @property
    def allowed_scores(self) -> tuple[float, ...]:
        """The scores a judge may give, ascending."""
        return (0.0, 1.0) if self.score_map is None else tuple(sorted(map(float, self.score_map)))

    def reward_for(self, raw: float) -> float:
        """Return the reward of a raw score: 0 to 1, and better is higher for both polarities.

        Raises:
            TypeError: `raw` is not a number.
            ValueError: `raw` is not an allowed score.
        """
        if not is_number(raw):
            raise TypeError(f"Rubric {self.title!r} needs a number as score, got {raw!r}.")
        allowed = self.allowed_scores
        if raw not in allowed:
            raise ValueError(f"Rubric {self.title!r} needs one of {list(allowed)} as score, got {raw!r}.")
        # halved first, so that the widest scales do not overflow
        low, high = allowed[0] / 2, allowed[-1] / 2
        share = (raw / 2 - low) / (high - low) if high > low else float(raw > allowed[0])
        return share if self.polarity == "positive" else 1 - share


def _checked_score_map(score_map: Any) -> dict[float, str]:
    """Return a copy that its owner cannot change any more."""
    if not isinstance(score_map, Mapping):
        raise TypeError(
            f"Rubric.score_map must map scores to their meanings or be None, got {type(score_map).__name__}."
        )
    for score, meaning in score_map.items():
        if not is_number(score):
            raise TypeError(f"Rubric.score_map needs numbers as scores, got {score!r}.")
        if not is_finite(score):
            raise ValueError(f"Rubric.score_map needs finite scores, got {score!r}.")
        require_text("Rubric.score_map", **{f"meaning of {score!r}": meaning})
    if len(set(map(float, score_map))) < max(2, len(score_map)):
        raise ValueError(f"Rubric.score_map needs at least 2 different scores, got {sorted(score_map)!r}.")
    return dict(score_map)


@dataclass(frozen=True, slots=True)
class RankingAnchor:
    """A response of known score, ranked along with the others to tie their positions to scores.

    Args:
        response: The response's text.
        score: What it is worth, in [0, 1].
        label: Name for the log.

    Raises:
        ValueError: a text is blank or the score is out of range.
    """

    response: str
    score: float
    label: str | None = None

    def __post_init__(self) -> None:
        require_text("RankingAnchor", response=self.response)
        if not is_number(self.score) or not 0 <= self.score <= 1:
            raise ValueError(f"RankingAnchor.score must be a number in [0, 1], got {self.score!r}.")
        if self.label is not None:
            require_text("RankingAnchor", label=self.label)


@dataclass(frozen=True, slots=True)
class RubricEvaluation:
    """A judge's verdict on one response.

    Args:
        score: The raw score, one of the rubric's allowed ones; `Rubric.reward_for` makes a reward of it.
        reasoning: The judge's reason, possibly empty.
        raw_response: The judge's answer as it came.
    """

    score: float
    reasoning: str
    raw_response: str


@dataclass(frozen=True, slots=True)
class RubricRanking:
    """A judge's verdict on several responses.

    Args:
        scores: One score in [0, 1] for each given response.
        ranking: Tiers of what was judged, best first, by the indices that the judge saw.
        reasoning: The judge's reason, possibly empty.
        raw_response: The judge's answer as it came; empty where no question was needed.
    """

    scores: tuple[float, ...]
    ranking: tuple[tuple[int, ...], ...]
    reasoning: str
    raw_response: str


async def evaluate_single_rubric(
    rubric: Rubric,
    *,
    question: str,
    response: str,
    judge: Judge,
    ground_truth: str | None = None,
    log_result: bool = True,
) -> RubricEvaluation:
    """Ask a judge for a response's score on a rubric.

    Args:
        rubric: The criterion.
        question: What was asked.
        response: What was answered.
        judge: Whom to ask.
        ground_truth: Reference answer to show to the judge, if any.
        log_result: Whether to log the verdict.

    Raises:
        JudgeError: whatever went wrong; the cause is chained.
    """
    try:
        prompt = prompts.build_rubric_evaluation_prompt(
            rubric, question=question, response=response, ground_truth=ground_truth
        )
        answer, raw = await judge.request_json(prompt, request_id=f"rubric:{_slug(rubric)}")
        evaluation = RubricEvaluation(
            score=score_of(answer, rubric.allowed_scores),
            reasoning=optional_text(answer, "reasoning"),
            raw_response=raw,
        )
    except Exception as error:
        title = getattr(rubric, "title", rubric)
        logger.exception("rubric.evaluation_failed title=%r", title)
        raise JudgeError(f"Rubric {title!r}: evaluation failed: {error}") from error
    if log_result:
        logger.info(
            "rubric.evaluated title=%r polarity=%s score=%s reasoning=%r",
            rubric.title,
            rubric.polarity,
            evaluation.score,
            evaluation.reasoning,
        )
    return evaluation


async def evaluate_rubric_ranking(
    rubric: Rubric,
    *,
    question: str,
    responses: Sequence[str | None],
    judge: Judge,
    ground_truth: str | None = None,
    anchors: Sequence[RankingAnchor] = (),
    below_ground_truth_ceiling: float = 0.3,
    log_result: bool = True,
) -> RubricRanking:
    """Ask a judge to rank responses by a rubric, and turn the ranks into scores.

    Without a reference the scores spread evenly from 1 to 0. A reference answer, or anchors of known score, are
    ranked along unmarked and fix what a rank is worth. A blank response scores 0 and is not shown; a sole response
    without a reference scores 1 unasked.

    Args:
        rubric: The criterion.
        question: What was asked.
        responses: What was answered.
        judge: Whom to ask.
        ground_truth: Reference answer; what ranks above it scores more than 0.5.
        anchors: Responses of known score, worst to best; not together with a reference answer.
        below_ground_truth_ceiling: What a response just below the reference answer comes close to, in [0, 1].
        log_result: Whether to log the verdict.

    Raises:
        ValueError: the ceiling is out of range, the anchors are out of order, or both kinds of reference are given.
        TypeError: an anchor is no `RankingAnchor`.
        JudgeError: the question failed or its answer is no ranking; the cause is chained.
    """
    if not 0 <= below_ground_truth_ceiling <= 1:
        raise ValueError(
            f"evaluate_rubric_ranking needs a below_ground_truth_ceiling in [0, 1], got {below_ground_truth_ceiling!r}."
        )
    _check_anchors(anchors)
    reference = "" if ground_truth is None else ground_truth.strip()
    if reference and anchors:
        raise ValueError("evaluate_rubric_ranking takes either a ground_truth or anchors, not both.")
    shown = {position: text.strip() for position, text in enumerate(responses) if text is not None and text.strip()}
    items = [*shown.values(), *([reference] if reference else ()), *(anchor.response.strip() for anchor in anchors)]
    tiers: tuple[tuple[int, ...], ...] = ()
    reasoning = raw = ""
    if shown and len(items) == 1:
        tiers = ((0,),)
    elif shown:
        tiers, reasoning, raw = await _ask_for_tiers(rubric, question, items, judge)
    scores = [0.0] * len(responses)
    if tiers:
        positions = positions_of(tiers)
        scale = _scale(positions, len(shown), reference, anchors, below_ground_truth_ceiling)
        for position, response_position in zip(positions, shown, strict=False):
            scores[response_position] = clip01(scale(position))
    result = RubricRanking(scores=tuple(scores), ranking=tiers, reasoning=reasoning, raw_response=raw)
    if log_result:
        logger.info(
            "rubric.ranked title=%r polarity=%s ranking=%s scores=%s anchors=%s reasoning=%r",
            rubric.title,
            rubric.polarity,
            result.ranking,
            result.scores,
            [(anchor.label or f"anchor@{anchor.score}", anchor.score) for anchor in anchors],
            reasoning,
        )
    return result


async def _ask_for_tiers(
    rubric: Rubric, question: str, items: Sequence[str], judge: Judge
) -> tuple[tuple[tuple[int, ...], ...], str, str]:
    try:
        prompt = prompts.build_rubric_ranking_prompt(rubric, question=question, responses=items)
        answer, raw = await judge.request_json(prompt, request_id=f"rubric-ranking:{_slug(rubric)}")
        return tiers_of(answer, len(items)), optional_text(answer, "reasoning"), raw
    except Exception as error:
        logger.exception("rubric.ranking_failed title=%r", rubric.title)
        raise JudgeError(f"Rubric {rubric.title!r}: ranking failed: {error}") from error


def _scale(
    positions: Sequence[float], responses: int, reference: str, anchors: Sequence[RankingAnchor], ceiling: float
) -> Scale:
    last = len(positions) - 1
    if reference:
        return ground_truth_scale(last, positions[responses], ceiling)
    if anchors:
        scores = [anchor.score for anchor in anchors]
        return anchored_scale(last, list(zip(positions[responses:], scores, strict=True)))
    return plain_scale(last)


def _check_anchors(anchors: Sequence[RankingAnchor]) -> None:
    for index, anchor in enumerate(anchors):
        if not isinstance(anchor, RankingAnchor):
            raise TypeError(f"anchors[{index}] must be a RankingAnchor, got {type(anchor).__name__}.")
    scores = [anchor.score for anchor in anchors]
    if scores != sorted(scores):
        raise ValueError(f"anchors must go from worst to best, got the scores {scores}.")


def _slug(rubric: Rubric) -> str:
    return re.sub(r"\s+", "-", rubric.title.lower())
