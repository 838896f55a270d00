"""What a trial's result means: why the rollout ended, and its rewards."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmax.envs.harbor.reward_kit import partial_credit
from benchmax.envs.shared_types import RolloutAttempt

if TYPE_CHECKING:
    from harbor.models.trial.result import TrialResult

__all__ = ["attempt_of_failure", "attempt_of_result"]

# one logger for all that happens to a rollout
logger = logging.getLogger("benchmax.envs.harbor.env")

_REPORTED_BY_HARNESS: Final = frozenset(
    {"context_exceeded", "output_exceeded", "max_turns_exceeded", "tool_budget_exceeded"}
)

_REASON_OF_EXCEPTION: Final = {
    "AgentTimeoutError": "harness_timeout",
    "ContextLengthExceededError": "context_exceeded",
    "ContextWindowExceededError": "context_exceeded",
    "OutputLengthExceededError": "output_exceeded",
    "NonZeroAgentExitCodeError": "harness_error",
    "SandboxBuildFailedError": "sandbox_error",
    "VerifierTimeoutError": "verifier_timeout",
}


def attempt_of_failure(rollout_id: str, error: Exception) -> RolloutAttempt:
    """Say how a rollout ended whose trial gave no result: without rewards, and why by the exception's class."""
    name = type(error).__name__
    return RolloutAttempt(
        rollout_id=rollout_id, termination_reason=_reason_of_exception(name), rewards={}, error=f"{name}: {error}"
    )


def attempt_of_result(rollout_id: str, result: TrialResult, trial_dir: Path) -> RolloutAttempt:
    """Say how a rollout ended whose trial gave a result.

    Args:
        rollout_id: Id of the rollout.
        result: The result.
        trial_dir: The trial's folder, where a verifier may have left details of its rewards.

    Raises:
        ValueError: a reward is not a number, or not finite.
        TypeError: a reward is of a type that is no number.
        OverflowError: a reward is an integer beyond the range of a float.
    """
    reason = _termination_reason(result)
    failure = result.exception_info
    given = None if result.verifier_result is None else result.verifier_result.rewards
    if given and failure is None:
        rewards = _numbers(given)
        credit = partial_credit(rollout_id, trial_dir)
        if credit is not None and "reward" in rewards:
            rewards.setdefault("partial_credit", credit)
        return RolloutAttempt(rollout_id=rollout_id, termination_reason=reason, rewards=rewards)
    if failure is not None:
        error = f"{failure.exception_type}: {failure.exception_message}"
    else:
        error = "The verifier returned no rewards; it has to write a reward file in every case."
        if reason == "finished":
            reason = "verifier_error"
    logger.error("harbor.rollout.zero_reward rollout_id=%s error=%s", rollout_id, error)
    return RolloutAttempt(rollout_id=rollout_id, termination_reason=reason, rewards={}, error=error)


def _termination_reason(result: TrialResult) -> str:
    reported = _reported_reason(result)
    if isinstance(reported, str) and reported in _REPORTED_BY_HARNESS:
        return reported
    if reported is not None and reported != "finished":
        logger.warning("harbor.rollout.unrecognized_harness_termination_reason reason=%r", reported)
    if result.exception_info is None:
        return "finished"
    return _reason_of_exception(result.exception_info.exception_type)


def _reason_of_exception(name: str) -> str:
    return _REASON_OF_EXCEPTION.get(name, "harness_error")


def _reported_reason(result: TrialResult) -> object:
    """Return what the harness says of itself, wherever it says it."""
    metadata: object = getattr(getattr(result, "agent_result", None), "metadata", None)
    if not isinstance(metadata, Mapping):
        return None
    reported: object = metadata.get("termination_reason")
    if reported is None and isinstance(legacy := metadata.get("harvey_metrics"), Mapping):
        return legacy.get("termination_reason")
    return reported


def _numbers(rewards: Mapping[str, float]) -> dict[str, float]:
    numbers = {str(name): float(value) for name, value in rewards.items()}
    for name, value in numbers.items():
        if not math.isfinite(value):
            raise ValueError(f"The verifier's reward {name!r} must be finite, got {value!r}.")
    return numbers
