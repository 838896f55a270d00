"""Short puzzles of three kinds, made on the fly and scored exactly."""

import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle, islice
from pathlib import Path

import sympy  # in the packages of the bundle: --pip sympy

from benchmax.envs import BaseEnv, BaseRollout, Dataset, DatasetSplit, Example, JsonRow, RewardMap, canonical_example_id

WORDS = ["balloon", "bookkeeper", "broccoli", "coffee", "committee", "mississippi", "possess", "tomorrow"]


def equation(rng: random.Random) -> tuple[str, str]:
    """A linear equation with an integer solution."""
    x = sympy.Symbol("x")
    left = rng.randint(1, 2) * x + rng.choice([-1, 1]) * rng.randint(1, 9)
    right = left.subs(x, rng.randint(1, 9))
    return f"Solve for x: {left} = {right}", str(sympy.solve(left - right, x)[0])


def prime(rng: random.Random) -> tuple[str, str]:
    """Whether a number is prime."""
    number = rng.randint(2, 99)
    return f"True or false: {number} is a prime number", str(sympy.isprime(number))


def counting(rng: random.Random) -> tuple[str, str]:
    """How often a letter occurs in a word."""
    letter = rng.choice(word := rng.choice(WORDS))
    return f'How many times does "{letter}" occur in "{word}"?', str(word.count(letter))


def puzzles() -> Iterator[JsonRow]:
    """The same endless row of puzzles in every run, none of them twice, each after two solved ones of its kind."""
    rng = random.Random(1)
    solved = {family: [family(rng), family(rng)] for family in (equation, prime, counting)}
    seen = {question for pairs in solved.values() for question, _ in pairs}
    for family, pairs in cycle(solved.items()):
        question, answer = family(rng)
        if question in seen:
            continue
        seen.add(question)
        prompt = [{"role": "system", "content": 'Reply with one line: "Answer: ..."'}]
        for shown, solution in pairs:
            prompt += [{"role": "user", "content": shown}, {"role": "assistant", "content": f"Answer: {solution}"}]
        prompt.append({"role": "user", "content": question})
        yield {"prompt_messages": prompt, "answer": answer, "family": family.__name__}


def answer_of(rollout: BaseRollout) -> str | None:
    """What the model answered, or nothing if it did not keep to the form."""
    found = re.search(r"Answer:\s*(?:x\s*=\s*)?([\w/-]+)", str(rollout.messages[-1].get("content")))
    return found[1].lower() if found else None


class Reasoning(BaseEnv):
    """One question, one answer: is it right, does it keep to the form, and do the siblings agree on it?"""

    max_turns = 1

    def __init__(self, *, size: int = 120) -> None:
        super().__init__()
        self.size = size

    async def create_dataset(
        self, split: DatasetSplit, base_dir: Path, *, max_examples: int | None = None
    ) -> Dataset[JsonRow]:
        # every fifth puzzle is for evaluation
        rows = (row for i, row in enumerate(islice(puzzles(), self.size)) if (i % 5 == 0) == (split == "eval"))
        return Dataset([Example(canonical_example_id(row), row) for row in islice(rows, max_examples)])

    async def compute_reward(self, rollout: BaseRollout) -> RewardMap:
        answer = answer_of(rollout)
        correct = answer == rollout.example_args["answer"].lower()
        return {"correct": float(correct), "formatted": float(answer is not None)}

    async def compute_group_rewards(self, rollouts: Sequence[BaseRollout]) -> Mapping[str, RewardMap]:
        votes = Counter(answer_of(rollout) for rollout in rollouts)
        return {r.rollout_id: {"agreement": votes[answer_of(r)] / len(rollouts)} for r in rollouts}
