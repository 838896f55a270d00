"""examples/calculator, run in this process with the mock model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from benchmax.envs import BaseEnv, BaseRollout
from runner.models import ServerCommand, mock_command
from runner.models.arithmetic import find_problem
from tests.integration.example_environment import EXAMPLES, load_example, run_groups
from tests.integration.model_process import RunningModel, running

FOLDER = EXAMPLES / "calculator"


@pytest.fixture(scope="module")
def calculator() -> ModuleType:
    return load_example("calculator")


@pytest.fixture
def env(calculator: ModuleType) -> BaseEnv:
    env: BaseEnv = calculator.Calculator()
    return env


@pytest.fixture(params=[mock_command(), mock_command(FOLDER / "mock.json")], ids=["default", "scripted"])
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RunningModel]:
    command: ServerCommand = request.param
    with running(command, tmp_path / "stderr") as model:
        yield model


@pytest.mark.parametrize("model", [mock_command()], indirect=True)
async def test_the_default_mock_solves_three_of_four_siblings(env: BaseEnv, model: RunningModel) -> None:
    groups = await run_groups(env, model, FOLDER, split="eval", examples=6, group_size=4)
    assert len(groups) == 6
    for group in groups:
        assert {outcome.termination_reason for outcome in group.values()} == {"finished"}
        assert sum(outcome.rewards["correct"] for outcome in group.values()) == 3


@pytest.mark.parametrize("model", [mock_command(FOLDER / "mock.json")], indirect=True)
async def test_the_scripted_mock_makes_another_mistake_for_each_sibling(env: BaseEnv, model: RunningModel) -> None:
    group = (await run_groups(env, model, FOLDER, split="eval", examples=1, group_size=6))[0]
    outcomes = list(group.values())
    assert [outcome.termination_reason for outcome in outcomes] == [
        "finished",
        "finished",
        "finished",
        "finished",
        "model_error",
        "max_turns_exceeded",
    ]
    assert outcomes[0].rewards == {"correct": 1.0, "economy": 1.0}
    assert outcomes[1].rewards == {"correct": 1.0, "economy": 0.5}
    assert outcomes[4].rewards == {}
    assert outcomes[5].rewards == {"correct": 0.0, "economy": 0.0}


@pytest.mark.parametrize("model", [mock_command(FOLDER / "mock.json")], indirect=True)
async def test_a_division_by_zero_is_told_to_the_model_and_it_goes_on(env: BaseEnv, model: RunningModel) -> None:
    group = (await run_groups(env, model, FOLDER, split="eval", examples=6, group_size=2))[-1]
    assert all(outcome.termination_reason == "finished" for outcome in group.values())
    assert max(outcome.rewards["correct"] for outcome in group.values()) == 1.0


@pytest.mark.parametrize(
    ("name", "arguments", "result"),
    [
        ("divide", {"left": 9, "right": 2}, {"value": 4.5}),
        ("divide", {"left": 9, "right": 0}, {"error": "ZeroDivisionError: division by zero"}),
        ("add", {"left": 9}, {"error": "KeyError: 'right'"}),
    ],
)
async def test_tools_give_a_value_or_say_what_was_wrong(
    env: BaseEnv, name: str, arguments: dict[str, object], result: dict[str, object]
) -> None:
    assert await env.run_tool("r", name, **arguments) == result


@pytest.mark.parametrize(
    ("text", "correct"),
    [("42", 1), ("It is 42.0", 1), ("6 * 7 = 42.", 1), ("42 or 43", 0), ("none", 0), ("-42", 0)],
)
async def test_the_last_number_of_the_answer_counts(env: BaseEnv, text: str, correct: int) -> None:
    rollout = BaseRollout(
        rollout_id="r",
        termination_reason="finished",
        messages=[{"role": "assistant", "content": text}],
        example_args={"answer": 42, "steps": 1},
    )
    assert (await env.compute_reward(rollout) or {})["correct"] == correct


@pytest.mark.parametrize("split", ["train", "eval"])
def test_every_answer_in_the_data_is_right(split: str) -> None:
    lines = (FOLDER / f"{split}.jsonl").read_text().splitlines()
    assert lines
    for row in map(json.loads, lines):
        problem = find_problem(row["question"])
        assert problem is not None
        assert problem.value == row["answer"]
