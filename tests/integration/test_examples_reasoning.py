"""examples/reasoning, run in this process with sympy from the package index and the mock model."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import ModuleType

import pytest

from benchmax.envs import BaseEnv, BaseRollout
from runner.models import mock_command
from tests.integration.example_environment import EXAMPLES, load_example, run_groups
from tests.integration.model_process import running

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def reasoning(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """The example's module, with sympy (pure Python) in a folder that only this fixture puts on the path."""
    packages = tmp_path_factory.mktemp("packages")
    uv = [sys.executable, "-m", "uv", "--quiet", "pip", "install", "--no-config", "--python", sys.executable]
    subprocess.run([*uv, "--target", str(packages), "sympy"], check=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(packages)
        yield load_example("reasoning")
    for name in [name for name in sys.modules if name.partition(".")[0] in {"sympy", "mpmath"}]:
        del sys.modules[name]


@pytest.fixture
def env(reasoning: ModuleType) -> BaseEnv:
    env: BaseEnv = reasoning.Reasoning()
    return env


def answered(text: str, answer: str, rollout_id: str = "r") -> BaseRollout:
    return BaseRollout(
        rollout_id=rollout_id,
        termination_reason="finished",
        messages=[{"role": "assistant", "content": text}],
        example_args={"answer": answer},
    )


async def test_the_dataset_is_the_same_every_time_and_its_splits_are_apart(env: BaseEnv, tmp_path: Path) -> None:
    train, evaluation = [await env.create_dataset(split, tmp_path) for split in ("train", "eval")]
    assert (len(train), len(evaluation)) == (96, 24)
    assert not {example.id for example in train} & {example.id for example in evaluation}
    assert len({example.id for example in train}) == 96
    again = await env.create_dataset("eval", tmp_path, max_examples=5)
    assert [example.id for example in again] == [example.id for example in evaluation][:5]


def test_three_families_have_the_answers_that_they_should(reasoning: ModuleType) -> None:
    families: dict[str, set[str]] = {}
    for row in islice(reasoning.puzzles(), 60):
        families.setdefault(row["family"], set()).add(row["answer"])
        question = row["prompt_messages"][-1]["content"]
        if row["family"] == "counting":
            _, letter, _, word, _ = question.split('"')
            assert int(row["answer"]) == word.count(letter) > 0
        elif row["family"] == "prime":
            number = int(question.split()[3])
            assert row["answer"] == str(all(number % divisor for divisor in range(2, number)))
        else:
            left, right = question.removeprefix("Solve for x: ").split(" = ")
            assert eval(left, {"x": int(row["answer"])}) == int(right)
    assert set(families) == {"counting", "prime", "equation"}
    assert families["prime"] == {"True", "False"}


@pytest.mark.parametrize(
    ("text", "answer", "correct", "formatted"),
    [
        ("Answer: 7", "7", 1, 1),
        ("Let me think.\nAnswer: x = 7.", "7", 1, 1),
        ("Answer: false", "False", 1, 1),
        ("Answer: 8", "7", 0, 1),
        ("Answer: 77", "7", 0, 1),
        ("7", "7", 0, 0),
        ("", "7", 0, 0),
    ],
)
async def test_an_answer_is_scored_exactly(env: BaseEnv, text: str, answer: str, correct: int, formatted: int) -> None:
    assert await env.compute_reward(answered(text, answer)) == {"correct": correct, "formatted": formatted}


async def test_agreement_is_the_share_of_siblings_with_the_same_answer(env: BaseEnv) -> None:
    texts = ["Answer: 7", "Answer: 7", "Answer: 8", "no idea"]
    rollouts = [answered(text, "7", rollout_id=str(index)) for index, text in enumerate(texts)]
    assert await env.compute_group_rewards(rollouts) == {
        "0": {"agreement": 0.5},
        "1": {"agreement": 0.5},
        "2": {"agreement": 0.25},
        "3": {"agreement": 0.25},
    }


async def test_groups_run_with_the_mock_and_are_the_same_in_every_run(env: BaseEnv, tmp_path: Path) -> None:
    runs = []
    for number in range(2):
        with running(mock_command(), tmp_path / f"stderr{number}") as model:
            runs.append(await run_groups(env, model, EXAMPLES, split="eval", examples=4, group_size=4))
    assert runs[0] == runs[1]
    outcomes = [outcome for group in runs[0] for outcome in group.values()]
    assert {outcome.termination_reason for outcome in outcomes} == {"finished"}
    assert {0.0, 1.0} == {outcome.rewards["correct"] for outcome in outcomes}
