"""Rubrics that a judge makes up by comparing the responses to one question, and a cache of the telling ones."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import pstdev
from typing import Any, get_args

from benchmax.rewards import prompts
from benchmax.rewards.answers import shortened
from benchmax.rewards.arguments import is_blank, is_finite, is_integer_from
from benchmax.rewards.concurrency import all_of
from benchmax.rewards.judge import Judge, JudgeError
from benchmax.rewards.rubric import Rubric, RubricPolarity, evaluate_single_rubric

__all__ = [
    "AdaptiveRubrics",
    "RubricCache",
    "generate_adaptive_rubrics",
    "generate_and_cache_adaptive_rubrics",
    "prompt_key",
]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AdaptiveRubrics:
    """Rubrics made for one question.

    Args:
        positive: Qualities.
        negative: Flaws.
    """

    positive: tuple[Rubric, ...] = ()
    negative: tuple[Rubric, ...] = ()

    @property
    def all(self) -> tuple[Rubric, ...]:
        """The positive ones, then the negative ones."""
        return self.positive + self.negative


@dataclass(frozen=True, slots=True)
class _Candidate:
    rubric: Rubric
    deviation: float


class RubricCache:
    """Keeps, for each question, the rubrics on which its responses differed most. In memory, owned by the caller.

    Questions are kept as hashes only.

    Args:
        max_per_polarity: Rubrics kept per question and polarity.

    Raises:
        ValueError: `max_per_polarity` is not an integer of at least 1.
    """

    def __init__(self, *, max_per_polarity: int = 3) -> None:
        if not is_integer_from(max_per_polarity, 1):
            raise ValueError(f"RubricCache needs a positive integer as max_per_polarity, got {max_per_polarity!r}.")
        self.max_per_polarity = max_per_polarity
        self._entries: dict[str, dict[str, dict[str, _Candidate]]] = {}

    def consider(self, prompt: str, rubric: Rubric, scores: Sequence[float]) -> bool:
        """Keep a rubric if it is among the most telling of its question and polarity.

        Scores that do not differ tell nothing and change nothing. Others replace an earlier rubric of that title,
        and then the rubrics of the largest standard deviation stay; of equals, those first in the alphabet.

        Args:
            prompt: The question.
            rubric: What was scored.
            scores: The raw scores of the question's responses.

        Returns:
            Whether the rubric is kept.

        Raises:
            ValueError: a score is not finite.
        """
        if not all(map(is_finite, scores)):
            raise ValueError(f"RubricCache.consider needs finite scores, got {list(scores)}.")
        if len(set(scores)) < 2:
            return False
        # plain dictionaries, both polarities from the start: other releases read a pickled cache
        polarities = self._entries.setdefault(prompt_key(prompt), {"positive": {}, "negative": {}})
        candidates = polarities.setdefault(rubric.polarity, {})
        # exact up to the root: equal spreads have to compare as equal for the titles to decide
        candidates[rubric.title] = _Candidate(rubric, pstdev(map(float, scores)))
        kept = _in_order(candidates)[: self.max_per_polarity]
        polarities[rubric.polarity] = {candidate.rubric.title: candidate for candidate in kept}
        return rubric.title in polarities[rubric.polarity]

    def get(self, prompt: str) -> AdaptiveRubrics:
        """Return what is kept for a question, the most telling first."""
        polarities = self._entries.get(prompt_key(prompt), {})
        positive, negative = (
            tuple(candidate.rubric for candidate in _in_order(polarities.get(polarity, {})))
            for polarity in get_args(RubricPolarity)
        )
        return AdaptiveRubrics(positive=positive, negative=negative)


def prompt_key(prompt: str) -> str:
    """Return the hash under which a cache keeps a question: SHA-256 of its text, in hexadecimal."""
    return hashlib.sha256(prompt.encode("utf-8", "surrogatepass")).hexdigest()


def _in_order(candidates: Mapping[str, _Candidate]) -> list[_Candidate]:
    return sorted(candidates.values(), key=lambda candidate: (-candidate.deviation, candidate.rubric.title))


async def generate_adaptive_rubrics(
    *,
    question: str,
    ground_truth: str,
    responses: Sequence[str],
    judge: Judge,
    existing_rubrics: Sequence[Rubric] = (),
) -> AdaptiveRubrics:
    """Ask a judge for rubrics that tell the responses to a question apart.

    Args:
        question: What was asked.
        ground_truth: Reference answer, shown as what good looks like.
        responses: What was answered.
        judge: Whom to ask.
        existing_rubrics: Rubrics not to be repeated.

    Raises:
        JudgeError: the request failed, or its answer has another form.
    """
    prompt = prompts.build_adaptive_rubric_prompt(
        question=question, ground_truth=ground_truth, responses=responses, existing_rubrics=existing_rubrics
    )
    answer, _ = await judge.request_json(prompt, request_id="adaptive-rubric-generation")
    try:
        generated = AdaptiveRubrics(
            positive=_parsed(answer, "positive_rubrics", "positive"),
            negative=_parsed(answer, "negative_rubrics", "negative"),
        )
    except ValueError as error:
        raise JudgeError(f"adaptive rubric generation failed: {error}") from error
    logger.info("adaptive_rubrics.generated positive=%d negative=%d", len(generated.positive), len(generated.negative))
    return generated


def _parsed(answer: Mapping[str, Any], name: str, polarity: RubricPolarity) -> tuple[Rubric, ...]:
    items = answer.get(name, [])
    if not isinstance(items, list):
        raise ValueError(f"{name!r} must be a list, got {shortened(repr(items))}")
    rubrics = []
    for index, item in enumerate(items):
        if not isinstance(item, dict):
            raise ValueError(f"{name}[{index}] must be an object, got {shortened(repr(item))}")
        for field in ("title", "description"):
            if is_blank(item.get(field)):
                raise ValueError(f"{name}[{index}] needs a non-blank {field!r}, got {shortened(repr(item))}")
        rubrics.append(Rubric(item["title"].strip(), item["description"].strip(), polarity))
    return tuple(rubrics)


async def generate_and_cache_adaptive_rubrics(
    *,
    question: str,
    ground_truth: str,
    responses: Sequence[str],
    judge: Judge,
    cache: RubricCache,
    existing_rubrics: Sequence[Rubric] = (),
) -> AdaptiveRubrics:
    """Generate rubrics, score the responses on them, and return the telling ones that the cache keeps.

    With fewer than two non-blank responses there is nothing to compare: the cache's content is returned unasked.

    Args:
        question: What was asked.
        ground_truth: Reference answer.
        responses: What was answered; blank ones are left out.
        judge: Whom to ask.
        cache: Keeps the rubrics of this question between calls.
        existing_rubrics: Rubrics not to be repeated, besides those in the cache.

    Raises:
        JudgeError: a request failed.
    """
    texts = [response.strip() for response in responses if response.strip()]
    if len(texts) < 2:
        return cache.get(question)
    generated = await generate_adaptive_rubrics(
        question=question,
        ground_truth=ground_truth,
        responses=texts,
        judge=judge,
        existing_rubrics=_merged(existing_rubrics, cache.get(question).all),
    )
    for rubric in generated.all:
        evaluations = await all_of(
            evaluate_single_rubric(rubric, question=question, response=text, judge=judge, ground_truth=ground_truth)
            for text in texts
        )
        cache.consider(question, rubric, [evaluation.score for evaluation in evaluations])
    return cache.get(question)


def _merged(*groups: Iterable[Rubric]) -> list[Rubric]:
    """Join groups of rubrics; of those with the same polarity and title the last counts."""
    return list({(rubric.polarity, rubric.title): rubric for group in groups for rubric in group}.values())
