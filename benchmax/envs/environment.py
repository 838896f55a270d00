"""The interface of all environments, and how a group of sibling rollouts is run, scored and settled."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from benchmax.envs.dataset import Dataset
from benchmax.envs.logging import _CURRENT_ROLLOUT_ID, group_context
from benchmax.envs.shared_types import (
    DatasetSplit,
    RewardMap,
    RolloutAttempt,
    RolloutFailure,
    RolloutOutcome,
    RolloutRequest,
    ValidationDiagnostic,
)

__all__ = ["Environment", "settle_termination_reason"]

PayloadT = TypeVar("PayloadT")
AttemptT = TypeVar("AttemptT", bound=RolloutAttempt)

logger = logging.getLogger(__name__)


def freeze_requests(requests: Iterable[RolloutRequest[PayloadT]]) -> tuple[RolloutRequest[PayloadT], ...]:
    """Copy the requests of one group and check that they are one.

    Raises:
        ValueError: there is none, or they repeat a rollout id or differ in example id or split.
    """
    frozen = tuple(requests)
    if not frozen:
        raise ValueError("run_group needs at least one request.")
    if len({request.rollout_id for request in frozen}) < len(frozen):
        counts = Counter(request.rollout_id for request in frozen)
        repeated = sorted(rollout_id for rollout_id, count in counts.items() if count > 1)
        raise ValueError(f"run_group got duplicate rollout IDs {repeated}; give every rollout of a group its own.")
    examples = {request.example.id for request in frozen}
    if len(examples) > 1:
        raise ValueError(f"All requests of a group must be for one example, got {len(examples)}: {sorted(examples)}.")
    splits = {request.split for request in frozen}
    if len(splits) > 1:
        raise ValueError(f"All requests of a group must be of one split, got {sorted(splits)}.")
    return frozen


def settle_termination_reason(attempt_reason: str, failure_reason: str) -> str:
    """Say which reason stands when scoring fails: the failure's replaces `finished` and nothing else."""
    return failure_reason if attempt_reason == "finished" else attempt_reason


class Environment(ABC, Generic[PayloadT, AttemptT]):
    """A dataset, how one rollout runs, and how a group of sibling rollouts is scored.

    Subclasses need not call `super().__init__()`.
    """

    scorable_termination_reasons: ClassVar[frozenset[str]] = frozenset(
        {"finished", "context_exceeded", "output_exceeded", "max_turns_exceeded", "tool_budget_exceeded"}
    )
    """Ends that take part in scoring; any other end gets no rewards."""

    @property
    def requires_public_model_endpoint(self) -> bool:
        """Whether the model is called from somewhere that cannot reach this machine's loopback."""
        return False

    def validation_diagnostics(self) -> Sequence[ValidationDiagnostic]:
        """Return what a person should know about this configuration before it runs; default nothing."""
        return ()

    @abstractmethod
    async def create_dataset(
        self, split: DatasetSplit, base_dir: Path, *, max_examples: int | None = None
    ) -> Dataset[PayloadT]:
        """Return the examples of a split in a fixed order.

        Args:
            split: Which split.
            base_dir: The data folder.
            max_examples: At most so many; implementations should stop reading there. `None` means all.
        """

    @abstractmethod
    async def run_rollout(self, request: RolloutRequest[PayloadT]) -> AttemptT:
        """Run one rollout.

        Returns:
            One attempt that carries the request's rollout id.

        Raises:
            RolloutFailure: the rollout failed in operation; it becomes an outcome. Anything else is a defect.
        """

    async def compute_group_rewards(self, rollouts: Sequence[AttemptT]) -> Mapping[str, RewardMap] | None:
        """Score sibling rollouts together.

        Args:
            rollouts: The scorable attempts of a group, in request order; at least one.

        Returns:
            Rewards for exactly these rollout ids, under names their own rewards do not use; `None` adds none.
        """
        return None

    async def run_group(self, requests: Iterable[RolloutRequest[PayloadT]]) -> Mapping[str, RolloutOutcome]:
        """Run rollouts of one example concurrently and score them.

        Args:
            requests: At least one request; all of one example and one split, with distinct rollout ids.

        Returns:
            One outcome per rollout id, in request order.

        Raises:
            ValueError: the requests are not one group, an attempt that is not scorable has rewards other than zero,
                or a group reward is not a finite number under a non-blank name.
            Exception: whatever a rollout raised that is not a `RolloutFailure`, after all siblings have ended.
        """
        frozen = freeze_requests(requests)
        loop = asyncio.get_running_loop()
        tasks = [
            loop.create_task(_run_attempt(self, request), name=f"benchmax-rollout-{request.rollout_id}")
            for request in frozen
        ]
        await _wait_for_all(tasks)
        outcomes, scorable = _classify(self, frozen, tasks)
        if scorable:
            outcomes.update(await _score_group(self, scorable))
        return {request.rollout_id: outcomes[request.rollout_id] for request in frozen}

    async def aclose(self) -> None:
        """Release what the environment holds; default nothing."""


# Module functions and not private methods: a subclass is somebody else's code and may use any name of its own.


async def _run_attempt(environment: Environment[PayloadT, AttemptT], request: RolloutRequest[PayloadT]) -> AttemptT:
    # what rollout_context would do; the task has a context of its own, so there is nothing to restore
    _CURRENT_ROLLOUT_ID.set(str(request.rollout_id))
    attempt = await environment.run_rollout(request)
    returned: object = attempt
    if not isinstance(returned, RolloutAttempt):
        raise TypeError(
            f"run_rollout of {request.rollout_id!r}: expected RolloutAttempt, got {type(returned).__name__}."
        )
    if returned.rollout_id != request.rollout_id:
        raise ValueError(
            f"run_rollout of {request.rollout_id!r} returned an attempt with the wrong rollout ID "
            f"{returned.rollout_id!r}; pass request.rollout_id on."
        )
    return attempt


def _classify(
    environment: Environment[PayloadT, AttemptT],
    requests: Sequence[RolloutRequest[PayloadT]],
    tasks: Sequence[asyncio.Task[AttemptT]],
) -> tuple[dict[str, RolloutOutcome], list[AttemptT]]:
    """Sort finished rollouts, in request order, into outcomes and attempts to score; raise the first defect."""
    outcomes: dict[str, RolloutOutcome] = {}
    scorable: list[AttemptT] = []
    defects: list[tuple[str, BaseException]] = []
    for request, task in zip(requests, tasks, strict=True):
        rollout_id = request.rollout_id
        try:
            attempt = task.result()
        except RolloutFailure as failure:
            _log_failure(rollout_id, failure.termination_reason, str(failure), failure)
            outcomes[rollout_id] = RolloutOutcome({}, failure.termination_reason, str(failure))
            continue
        except BaseException as defect:  # noqa: BLE001 - a rollout's own CancelledError is its defect, too
            defects.append((rollout_id, defect))
            continue
        reason = attempt.termination_reason
        if reason in environment.scorable_termination_reasons:
            scorable.append(attempt)
        else:
            outcomes[rollout_id] = _unscored_outcome(attempt)
        if reason != "finished":
            logger.warning("benchmax.rollout.terminated rollout_id=%s termination_reason=%s", rollout_id, reason)
    for rollout_id, further in defects[1:]:
        logger.error(
            "additional rollout contract error rollout_id=%s: %s", rollout_id, _describe(further), exc_info=further
        )
    if defects:
        raise defects[0][1]
    return outcomes, scorable


def _unscored_outcome(attempt: RolloutAttempt) -> RolloutOutcome:
    rewards = {} if attempt.rewards is None else attempt.rewards
    if any(value != 0 for value in rewards.values()):
        raise ValueError(
            f"Rollout {attempt.rollout_id!r} ended with {attempt.termination_reason!r}, which is not scorable, "
            f"but has non-zero rewards {dict(rewards)!r}; leave them empty."
        )
    return RolloutOutcome(rewards, attempt.termination_reason, attempt.error)


async def _score_group(
    environment: Environment[PayloadT, AttemptT], attempts: list[AttemptT]
) -> dict[str, RolloutOutcome]:
    try:
        with group_context([attempt.rollout_id for attempt in attempts]):
            group_rewards = await environment.compute_group_rewards(list(attempts))
        merged = _merge_rewards(attempts, group_rewards)
    except RolloutFailure as failure:
        return _settle(attempts, failure.termination_reason, str(failure), failure)
    except Exception as defect:  # noqa: BLE001 - a defect of scoring is data: it ends up in every outcome
        return _settle(attempts, "group_reward_error", _describe(defect), defect)
    return {
        attempt.rollout_id: RolloutOutcome(merged[attempt.rollout_id], attempt.termination_reason, attempt.error)
        for attempt in attempts
    }


class _Ends:
    """Waits for tasks one after the other: those that end together need one callback, and not one each.

    An object and no function in a function, which would refer to itself and be left to the cyclic collector.
    """

    __slots__ = ("_rest", "all_done")

    def __init__(self, tasks: Iterable[asyncio.Task[Any]]) -> None:
        self._rest = iter(tasks)
        self.all_done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def go_on(self, _: object) -> None:
        for task in self._rest:
            if not task.done():
                task.add_done_callback(self.go_on)
                return
        if not self.all_done.done():
            self.all_done.set_result(None)


async def _wait_for_all(tasks: Sequence[asyncio.Task[Any]]) -> None:
    ends = _Ends(tasks)
    ends.go_on(None)
    try:
        await ends.all_done
    except BaseException:
        while pending := [task for task in tasks if not task.done()]:
            for task in pending:
                task.cancel()
            try:
                await asyncio.wait(pending)
            except asyncio.CancelledError:
                # cancelled once more while the siblings wind down: the first interruption is re-raised below
                continue
        raise
    finally:
        for task in tasks:
            if task.done() and not task.cancelled():
                task.exception()  # marks it retrieved, else asyncio reports it when the task is collected


def _merge_rewards(attempts: Sequence[RolloutAttempt], group_rewards: object) -> dict[str, dict[str, float]]:
    by_rollout = {} if group_rewards is None else _aligned(attempts, group_rewards)
    merged: dict[str, dict[str, float]] = {}
    for attempt in attempts:
        union = dict(attempt.rewards or {})
        if group := by_rollout.get(attempt.rollout_id):
            if shared := union.keys() & group.keys():
                raise ValueError(
                    f"Individual and group rewards of rollout {attempt.rollout_id!r} have duplicate keys: "
                    f"{sorted(shared, key=str)}; give group rewards their own names."
                )
            union.update(group)
        if not union and attempt.termination_reason == "finished":
            raise ValueError(
                f"Rollout {attempt.rollout_id!r} finished with no rewards; "
                "return some from the rollout or from compute_group_rewards."
            )
        merged[attempt.rollout_id] = union
    return merged


def _aligned(attempts: Sequence[RolloutAttempt], group_rewards: object) -> Mapping[str, RewardMap]:
    if not isinstance(group_rewards, Mapping):
        raise TypeError(
            "compute_group_rewards must return a mapping of rollout ids to reward maps, or None, "
            f"got {type(group_rewards).__name__}."
        )
    for rollout_id in group_rewards:
        if not isinstance(rollout_id, str):
            raise TypeError(f"compute_group_rewards must return rollout ids as keys, got {rollout_id!r}.")
    expected = {attempt.rollout_id for attempt in attempts}
    if expected != set(group_rewards):
        missing, unknown = sorted(expected - set(group_rewards)), sorted(set(group_rewards) - expected)
        raise ValueError(
            "compute_group_rewards must return rewards for exactly the rollouts it was given: "
            f"missing={missing} unknown={unknown}."
        )
    for rollout_id, rewards in group_rewards.items():
        if not isinstance(rewards, Mapping):
            raise TypeError(
                f"compute_group_rewards must return a reward map for {rollout_id!r}, got {type(rewards).__name__}."
            )
    return group_rewards


def _settle(attempts: Sequence[RolloutAttempt], reason: str, text: str, error: Exception) -> dict[str, RolloutOutcome]:
    _log_failure("group", reason, text, error)
    return {
        attempt.rollout_id: RolloutOutcome(
            {}, settle_termination_reason(attempt.termination_reason, reason), attempt.error or text
        )
        for attempt in attempts
    }


def _log_failure(rollout_id: str, reason: str, text: str, error: BaseException) -> None:
    logger.error(
        "benchmax.rollout.failed rollout_id=%s termination_reason=%s: %s", rollout_id, reason, text, exc_info=error
    )


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
