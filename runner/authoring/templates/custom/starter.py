"""Sums with a second chance: an environment that talks to the model in turns of its own, without `BaseEnv`."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmax.auth import create_async_openai_client
from benchmax.envs import (
    Dataset,
    DatasetSplit,
    Environment,
    Example,
    RewardMap,
    RolloutAttempt,
    RolloutFailure,
    RolloutRequest,
    canonical_example_id,
)
from openai import OpenAIError


@dataclass(frozen=True, slots=True)
class Sum:
    """What an example holds."""

    left: int
    right: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tries(RolloutAttempt):
    """How one rollout went, for the comparison with its siblings."""

    answers: tuple[int | None, ...]


class Starter(Environment[Sum, Tries]):
    """The model may try again as often as `max_tries` allows."""

    scorable_termination_reasons = frozenset({"finished", "tries_used_up"})

    def __init__(self, *, size: int = 6, max_tries: int = 2) -> None:
        self.size = size
        self.max_tries = max_tries

    async def create_dataset(
        self, split: DatasetSplit, base_dir: Path, *, max_examples: int | None = None
    ) -> Dataset[Sum]:
        """Make sums instead of reading them; every second one is for evaluation."""
        sums = [Sum(7 * number + 3, 5 * number + 8) for number in range(self.size)][split == "eval" :: 2]
        return Dataset([Example(canonical_example_id([s.left, s.right]), s) for s in sums[:max_examples]])

    async def run_rollout(self, request: RolloutRequest[Sum]) -> Tries:
        """Ask, and ask again if the answer is wrong."""
        payload = request.example.payload
        question = f"What is {payload.left} + {payload.right}?"
        messages: list[Any] = [{"role": "user", "content": question}]
        answers: list[int | None] = []
        async with create_async_openai_client(
            model=request.model,
            base_url=request.base_url,
            auth=request.model_auth,
            request_id=request.rollout_id,
            max_retries=0,
        ) as client:
            while len(answers) < self.max_tries:
                try:
                    response = await client.chat.completions.create(model=request.model, messages=messages)
                except OpenAIError as error:
                    # the server failed, not the model: no reward for this rollout, and its siblings go on
                    used_up = getattr(error, "code", None) == "context_budget_exceeded"
                    reason = "context_exceeded" if used_up else "model_error"
                    raise RolloutFailure(reason, f"{type(error).__name__}: {error}") from error
                text = (response.choices[0].message.content if response.choices else None) or ""
                answers.append(last_number(text))
                if answers[-1] == payload.left + payload.right:
                    break
                messages += [
                    {"role": "assistant", "content": text},
                    {"role": "user", "content": f"That is wrong. {question}"},
                ]
        solved = answers[-1] == payload.left + payload.right
        return Tries(
            rollout_id=request.rollout_id,
            termination_reason="finished" if solved else "tries_used_up",
            rewards={"solved": float(solved), "at_once": float(solved and len(answers) == 1)},
            answers=tuple(answers),
        )

    async def compute_group_rewards(self, rollouts: Sequence[Tries]) -> Mapping[str, RewardMap]:
        """Score siblings against each other: how many of them gave the same last answer?"""
        last = [attempt.answers[-1] for attempt in rollouts]
        return {r.rollout_id: {"agreement": last.count(r.answers[-1]) / len(last)} for r in rollouts}


def last_number(text: str) -> int | None:
    """Return the last whole number in a text, or nothing."""
    numbers = re.findall(r"-?\d{1,18}", text)
    return int(numbers[-1]) if numbers else None
