"""Details of rewards that a verifier of the RewardKit leaves: a weighted score, and what was missed."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["partial_credit"]

# one logger for all that happens to a rollout
logger = logging.getLogger("benchmax.envs.harbor.env")

_NAME_LENGTH: Final = 80
_DESCRIPTION_LENGTH: Final = 180
_REASONING_LENGTH: Final = 360
_MISSES_SHOWN: Final = 8


@dataclass(frozen=True, slots=True)
class _Criterion:
    name: str
    value: float
    weight: float
    description: str
    reasoning: str

    @property
    def impact(self) -> float:
        return self.weight * max(0.0, 1.0 - self.value)

    def shown(self) -> dict[str, str | float]:
        return {
            "name": self.name,
            "value": self.value,
            "weight": self.weight,
            "impact": self.impact,
            "description": self.description,
            "reasoning": self.reasoning,
        }


def partial_credit(rollout_id: str, trial_dir: Path) -> float | None:
    """Return the weighted mean of a trial's criteria, and log how they were met.

    Returns:
        The mean; `None` if there are no details of criteria, or a number among them is not one to reckon with.
    """
    given = _read_criteria(trial_dir / "verifier" / "reward-details.json")
    criteria = None if given is None else _judged(given)
    if criteria is None:
        return None
    weights = sum(criterion.weight for criterion in criteria)
    if not weights > 0:
        return None
    score = sum(criterion.weight * criterion.value for criterion in criteria) / weights
    if not math.isfinite(score):
        return None
    _log_criteria(rollout_id, criteria, score)
    return score


def _read_criteria(path: Path) -> Sequence[Mapping[str, object]] | None:
    if not path.is_file():
        return None
    try:
        details: object = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        logger.warning("harbor.rewardkit.invalid_details path=%s", path)
        return None
    if isinstance(details, dict) and "reward" in details:
        details = details["reward"]
    criteria = details.get("criteria") if isinstance(details, dict) else None
    if not isinstance(criteria, list) or not criteria or not all(isinstance(one, dict) for one in criteria):
        return None
    return criteria


def _judged(given: Sequence[Mapping[str, object]]) -> list[_Criterion] | None:
    criteria: list[_Criterion] = []
    names: dict[str, int] = {}
    for number, one in enumerate(given, start=1):
        value, weight = _number(one.get("value", 0)), _number(one.get("weight", 1))
        if value is None or weight is None or weight < 0:
            return None
        name = _distinct(_short(one.get("name"), _NAME_LENGTH) or f"criterion-{number}", names)
        description = _short(one.get("description"), _DESCRIPTION_LENGTH)
        criteria.append(_Criterion(name, value, weight, description, _short(one.get("reasoning"), _REASONING_LENGTH)))
    return criteria


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _short(value: object, length: int) -> str:
    if not isinstance(value, str):
        return ""
    text = " ".join(value.split())
    return text if len(text) <= length else text[: length - 1] + "…"


def _distinct(name: str, taken: dict[str, int]) -> str:
    """Return a name that is not taken yet; `taken` holds, for each name, the number it was last given with."""
    candidate = name
    while candidate in taken:
        taken[name] += 1
        suffix = f"#{taken[name]}"
        candidate = _short(name, _NAME_LENGTH - len(suffix)) + suffix
    taken[candidate] = 1
    return candidate


def _log_criteria(rollout_id: str, criteria: Sequence[_Criterion], score: float) -> None:
    passed = sum(criterion.value >= 1 for criterion in criteria)
    partial = sum(0 < criterion.value < 1 for criterion in criteria)
    logger.info(
        "harbor.rewardkit.criteria rollout_id=%s total=%d passed=%d partial=%d failed=%d weighted_score=%.6f values=%s",
        rollout_id,
        len(criteria),
        passed,
        partial,
        len(criteria) - passed - partial,
        score,
        _compact({criterion.name: criterion.value for criterion in criteria}),
    )
    misses = sorted((one for one in criteria if one.value < 1), key=lambda one: (-one.impact, one.name))
    if misses:
        shown = [one.shown() for one in misses[:_MISSES_SHOWN]]
        logger.info(
            "harbor.rewardkit.misses rollout_id=%s shown=%d omitted=%d details=%s",
            rollout_id,
            len(shown),
            len(misses) - len(shown),
            _compact(shown),
        )


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
