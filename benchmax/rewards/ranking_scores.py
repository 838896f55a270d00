"""From a judge's ranking to scores: positions of the items, and three scales to read them on. Private.

A position is 0 for a sole best item and grows downwards; the items of a tier share the mean of their places. On every
scale a better position never scores lower, and scores lie in [0, 1].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeAlias

__all__ = ["Scale", "anchored_scale", "ground_truth_scale", "plain_scale", "positions_of"]

Scale: TypeAlias = Callable[[float], float]


def positions_of(tiers: Sequence[Sequence[int]]) -> list[float]:
    """Return the position of each item, in the order of their indices."""
    positions: dict[int, float] = {}
    above = 0
    for tier in tiers:
        for index in tier:
            positions[index] = above + (len(tier) - 1) / 2
        above += len(tier)
    return [positions[index] for index in range(above)]


def plain_scale(last: float) -> Scale:
    """Spread positions evenly from 1 at the top to 0 at `last`."""
    return lambda position: 1 - position / last if last else 1.0


def ground_truth_scale(last: float, ground_truth: float, ceiling: float) -> Scale:
    """Read positions against a reference answer's: from 1 down to 0.5 above it, from `ceiling` down to 0 below it."""

    def score(position: float) -> float:
        if position < ground_truth:
            return 0.5 + 0.5 * (ground_truth - position) / ground_truth
        if position == ground_truth:
            return 0.5
        return ceiling * (1 - (position - ground_truth) / (last - ground_truth))

    return score


def anchored_scale(last: float, anchors: Sequence[tuple[float, float]]) -> Scale:
    """Read positions against items of known score, linearly between them and on to 1 at the top and 0 at the bottom.

    Args:
        last: The lowest position there is.
        anchors: Position and score of each known item, in any order; the judge may contradict the scores.
    """
    seams = _seams(anchors)
    (first_position, first_score), (last_position, last_score) = seams[0], seams[-1]

    def score(position: float) -> float:
        if position <= first_position:
            if first_position == 0:
                return first_score
            return first_score + (1 - first_score) * (first_position - position) / first_position
        if position >= last_position:
            return last_score * (last - position) / (last - last_position) if last > last_position else 0.0
        for (left, left_score), (right, right_score) in pairwise(seams):
            if position <= right:
                return left_score + (right_score - left_score) * (position - left) / (right - left)
        raise AssertionError(f"position {position} lies between no two of {seams}")

    return score


def _seams(anchors: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Sort anchors by position; where a lower one has the higher score, it moves up to the place of what it passes."""
    seams: list[tuple[float, float]] = []
    for position, score in sorted(anchors):
        place = position
        while seams and score > seams[-1][1]:
            place, _ = seams.pop()
        seams.append((place, score))
    return seams
