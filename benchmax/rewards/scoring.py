"""Rewards of rollouts from rubrics: one completion, or a group of sibling completions."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

from benchmax.rewards.adaptive import RubricCache, generate_and_cache_adaptive_rubrics
from benchmax.rewards.arguments import require_same_length, require_text
from benchmax.rewards.concurrency import all_of
from benchmax.rewards.deterministic import Completion, extract_completion_text
from benchmax.rewards.judge import Judge
from benchmax.rewards.rubric import Rubric, evaluate_rubric_ranking, evaluate_single_rubric

__all__ = ["rank_group_rubrics", "rubric_reward_key", "score_group_rubrics", "score_rubrics"]

logger = logging.getLogger(__name__)

_ADAPTIVE_KEY: Final = "rubric_adaptive"


def rubric_reward_key(rubric: Rubric) -> str:
    """Return the name of a rubric's reward: `rubric_` and the title in lower-case letters, digits and underscores.

    Raises:
        ValueError: the title has no letter or digit of ASCII.
    """
    name = re.sub("[^a-z0-9]+", "_", rubric.title.lower()).strip("_")
    if not name:
        raise ValueError(
            f"Rubric title {rubric.title!r} needs a letter or digit of ASCII, to name its reward; rename the rubric."
        )
    return f"rubric_{name}"


async def score_rubrics(
    rollout_id: str,
    completion: Completion,
    *,
    ground_truth: Any,
    rubrics: Sequence[Rubric],
    question: str,
    judge: Judge,
) -> dict[str, float]:
    """Score one completion on every rubric, concurrently.

    Args:
        rollout_id: Id of the rollout, for the log.
        completion: What the model produced. An empty one scores 0 on every rubric, also on negative ones, unasked.
        ground_truth: Reference answer to show to the judge, as text; `None` shows none.
        rubrics: The criteria, at least one.
        question: What was asked.
        judge: Whom to ask.

    Returns:
        Rewards in [0, 1] by `rubric_reward_key`.

    Raises:
        ValueError: there is no rubric, or two share a key.
        JudgeError: an evaluation failed; the others are cancelled.
    """
    keys = _reward_keys("score_rubrics", rubrics)
    text = extract_completion_text(completion)
    if text:
        rewards = await _scores(text, keys, rubrics, question, _reference(ground_truth), judge)
    else:
        rewards = dict.fromkeys(keys, 0.0)
    _log_scored([rollout_id], [text], [rewards])
    return rewards


async def score_group_rubrics(
    rollout_ids: Sequence[str],
    completions: Sequence[Completion],
    *,
    ground_truth: Any,
    question: str,
    judge: Judge,
    rubrics: Sequence[Rubric] = (),
    use_adaptive: bool = False,
    existing_rubrics: Sequence[Rubric] = (),
    cache: RubricCache | None = None,
) -> list[dict[str, float]]:
    """Score sibling completions on every rubric, and on rubrics that a judge makes up from comparing them.

    Args:
        rollout_ids: Ids of the rollouts.
        completions: What the model produced, in the same order; an empty one scores 0 on everything.
        ground_truth: Reference answer as in `score_rubrics`.
        question: What was asked.
        judge: Whom to ask.
        rubrics: The criteria; may be empty with `use_adaptive` only.
        use_adaptive: Whether to add `rubric_adaptive`, the mean reward on the generated rubrics that the cache keeps.
        existing_rubrics: Criteria that the generation should not repeat; they are not scored.
        cache: Keeps generated rubrics between calls; default a new one.

    Returns:
        Rewards in [0, 1] for each rollout.

    Raises:
        ValueError: ids or completions do not match, are missing, blank or repeated; rubrics as in `score_rubrics`.
        JudgeError: a request failed.
    """
    _check_group("score_group_rubrics", rollout_ids, completions)
    adaptive_key = (_ADAPTIVE_KEY,) if use_adaptive else ()
    keys = _reward_keys("score_group_rubrics", rubrics, adaptive_key)
    texts = [extract_completion_text(completion) for completion in completions]
    reference = _reference(ground_truth)
    rewards = [dict.fromkeys((*keys, *adaptive_key), 0.0) for _ in texts]
    answered = [position for position, text in enumerate(texts) if text]
    scored = await all_of(_scores(texts[position], keys, rubrics, question, reference, judge) for position in answered)
    for position, scores in zip(answered, scored, strict=True):
        rewards[position].update(scores)
    if use_adaptive:
        selected = await generate_and_cache_adaptive_rubrics(
            question=question,
            ground_truth=reference or "",
            responses=texts,
            judge=judge,
            cache=RubricCache() if cache is None else cache,
            existing_rubrics=existing_rubrics,
        )
        if selected.all:
            scored_adaptively = await all_of(
                _all_rewards(texts[position], selected.all, question, reference, judge) for position in answered
            )
            for position, values in zip(answered, scored_adaptively, strict=True):
                rewards[position][_ADAPTIVE_KEY] = sum(values) / len(values)
    _log_scored(rollout_ids, texts, rewards)
    return rewards


async def rank_group_rubrics(
    rollout_ids: Sequence[str],
    completions: Sequence[Completion],
    *,
    ground_truth: Any,
    question: str,
    judge: Judge,
    rubrics: Sequence[Rubric],
    include_ground_truth: bool = True,
) -> list[dict[str, float]]:
    """Rank sibling completions on every rubric, concurrently; see `evaluate_rubric_ranking`.

    Args:
        rollout_ids: Ids of the rollouts.
        completions: What the model produced, in the same order.
        ground_truth: Reference answer, ranked along as text; `None` or a blank one is none.
        question: What was asked.
        judge: Whom to ask.
        rubrics: The criteria, at least one.
        include_ground_truth: Whether to rank the reference answer along.

    Returns:
        Scores in [0, 1] by `rubric_reward_key` for each rollout.

    Raises:
        ValueError: ids or completions do not match, are missing, blank or repeated; no rubric, or two share a key.
        JudgeError: a ranking failed; the others are cancelled.
    """
    _check_group("rank_group_rubrics", rollout_ids, completions)
    keys = _reward_keys("rank_group_rubrics", rubrics)
    texts = [extract_completion_text(completion) for completion in completions]
    reference = _reference(ground_truth) if include_ground_truth else None
    rankings = await all_of(
        evaluate_rubric_ranking(rubric, question=question, responses=texts, judge=judge, ground_truth=reference)
        for rubric in rubrics
    )
    rewards = [
        {key: ranking.scores[position] for key, ranking in zip(keys, rankings, strict=True)}
        for position in range(len(texts))
    ]
    for rollout_id, scores in zip(rollout_ids, rewards, strict=True):
        logger.info("rubric.ranked rollout_id=%s rewards=%s", rollout_id, scores)
    return rewards


async def _scores(
    text: str, keys: Sequence[str], rubrics: Sequence[Rubric], question: str, reference: str | None, judge: Judge
) -> dict[str, float]:
    return dict(zip(keys, await _all_rewards(text, rubrics, question, reference, judge), strict=True))


async def _all_rewards(
    text: str, rubrics: Iterable[Rubric], question: str, reference: str | None, judge: Judge
) -> list[float]:
    async def reward(rubric: Rubric) -> float:
        evaluation = await evaluate_single_rubric(
            rubric, question=question, response=text, judge=judge, ground_truth=reference
        )
        return rubric.reward_for(evaluation.score)

    return await all_of(map(reward, rubrics))


def _reference(ground_truth: Any) -> str | None:
    return None if ground_truth is None else str(ground_truth)


def _reward_keys(function: str, rubrics: Sequence[Rubric], others: Sequence[str] = ()) -> list[str]:
    if not rubrics and not others:
        raise ValueError(f"{function} needs at least one rubric.")
    keys = [rubric_reward_key(rubric) for rubric in rubrics]
    taken = [*keys, *others]
    repeated = sorted({key for key in taken if taken.count(key) > 1})
    if repeated:
        raise ValueError(f"{function} needs rubrics with unique reward keys, got {repeated} twice; change a title.")
    return keys


def _check_group(function: str, rollout_ids: Sequence[str], completions: Sequence[Completion]) -> None:
    require_same_length(function, rollout_ids=rollout_ids, completions=completions)
    if not rollout_ids:
        raise ValueError(f"{function} needs at least one rollout, got an empty group.")
    for position, rollout_id in enumerate(rollout_ids):
        require_text(function, **{f"rollout_ids[{position}]": rollout_id})
    if len(set(rollout_ids)) < len(rollout_ids):
        raise ValueError(f"{function} needs unique rollout ids, got {list(rollout_ids)}.")


def _log_scored(rollout_ids: Sequence[str], texts: Sequence[str], rewards: Sequence[dict[str, float]]) -> None:
    for rollout_id, text, scores in zip(rollout_ids, texts, rewards, strict=True):
        empty = "" if text else " empty_completion=true"
        logger.info("rubric.scored rollout_id=%s rewards=%s%s", rollout_id, scores, empty)
