"""A number to be guessed, where the other side of the conversation is code.

It shows an `Environment` without `BaseEnv`: payloads and attempts of its own types, its own turns with the model, ends
of its own that are scored, and a failing model told apart from a bad guess.

    benchmax bundle examples/guessing/guessing.py:Guessing --out out/guessing
    benchmax run out/guessing --model mock:examples/guessing/mock.json --group-size 4
    benchmax run out/guessing --model local --max-examples 2
"""

import math
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openai import OpenAIError

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


@dataclass(frozen=True, slots=True)
class Secret:
    """What an example holds: a number from 1 to `highest`."""

    number: int
    highest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Game(RolloutAttempt):
    """How one rollout went, for the comparison with its siblings."""

    guesses: tuple[int, ...]


class Guessing(Environment[Secret, Game]):
    """Guess a number; each answer says whether it is higher or lower. Halving what is left needs the fewest guesses."""

    scorable_termination_reasons = frozenset({"finished", "guesses_used_up", "no_number"})

    def __init__(self, *, highest: int = 16, max_guesses: int = 8) -> None:
        self.highest = highest
        self.max_guesses = max_guesses

    async def create_dataset(
        self, split: DatasetSplit, base_dir: Path, *, max_examples: int | None = None
    ) -> Dataset[Secret]:
        numbers = list(range(1, self.highest + 1))
        random.Random(1).shuffle(numbers)
        # every fourth number is for evaluation
        chosen = [number for i, number in enumerate(numbers) if (i % 4 == 0) == (split == "eval")]
        secrets = [Secret(number, self.highest) for number in chosen[:max_examples]]
        return Dataset([Example(canonical_example_id([s.number, s.highest]), s) for s in secrets])

    async def run_rollout(self, request: RolloutRequest[Secret]) -> Game:
        secret = request.example.payload
        messages = beginning(secret.highest)
        guesses: list[int] = []
        reason = "guesses_used_up"
        async with create_async_openai_client(
            model=request.model,
            base_url=request.base_url,
            auth=request.model_auth,
            request_id=request.rollout_id,
            max_retries=0,
        ) as client:
            while len(guesses) < self.max_guesses:
                try:
                    response = await client.chat.completions.create(model=request.model, messages=messages)
                except OpenAIError as error:
                    # the model's server failed, not the model: an outcome without rewards, and the siblings go on
                    used_up = getattr(error, "code", None) == "context_budget_exceeded"
                    reason = "context_exceeded" if used_up else "model_error"
                    raise RolloutFailure(reason, f"{type(error).__name__}: {error}") from error
                if not response.choices:
                    raise RolloutFailure("model_error", "The model's answer has no choices.")
                text = response.choices[0].message.content or ""
                found = re.search(r"-?\d{1,9}", text)
                if found is None:
                    reason = "no_number"
                    break
                guess = int(found[0])
                guesses.append(guess)
                if guess == secret.number:
                    reason = "finished"
                    break
                hint = f"{guess} is too {'low' if guess < secret.number else 'high'}."
                messages += [{"role": "assistant", "content": text}, {"role": "user", "content": hint}]
        rewards = {"found": float(reason == "finished"), "economy": economy(reason, len(guesses), secret.highest)}
        return Game(rollout_id=request.rollout_id, termination_reason=reason, rewards=rewards, guesses=tuple(guesses))

    async def compute_group_rewards(self, rollouts: Sequence[Game]) -> Mapping[str, RewardMap]:
        used = {game.rollout_id: len(game.guesses) for game in rollouts if game.termination_reason == "finished"}
        fewest = min(used.values(), default=0)
        return {game.rollout_id: {"fastest": float(used.get(game.rollout_id) == fewest)} for game in rollouts}


def beginning(highest: int) -> list[Any]:
    """The rules, a short game as an example, and the first question."""
    game = [
        "Guess my whole number from 1 to 10. Reply with one number and nothing else.",
        "5",
        "5 is too low.",
        "8",
        f"Right. Now guess my whole number from 1 to {highest}.",
    ]
    return [{"role": ("user", "assistant")[turn % 2], "content": text} for turn, text in enumerate(game)]


def economy(reason: str, guesses: int, highest: int) -> float:
    """For a found number, the guesses that always suffice divided by those it took, at most 1."""
    enough = math.ceil(math.log2(highest + 1))
    return min(1.0, enough / guesses) if reason == "finished" else 0.0
