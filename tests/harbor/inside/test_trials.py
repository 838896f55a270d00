"""Real trials of Harbor: what goes into them, and what comes out."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from harbor.models.trial.config import AgentConfig, EnvironmentConfig, VerifierConfig

from benchmax.auth import ModelRequestContext
from benchmax.envs import Example, RolloutOutcome, StaticBearerAuth
from tests.harbor.inside import agents
from tests.harbor.inside.folder_sandbox import FolderSandbox
from tests.harbor.inside.lab import (
    BASE_URL,
    SANDBOX,
    example_of,
    make_env,
    make_task,
    make_tasks,
    request_for,
    template,
)


def small(name: str, **options: Any) -> AgentConfig:
    return AgentConfig(import_path=f"{agents.HERE}:{name}", kwargs=options)


@pytest.fixture
def task(tmp_path: Path) -> Path:
    return make_task(tmp_path / "tasks" / "one")


async def one_outcome(task: Path, agent: AgentConfig, **changes: Any) -> RolloutOutcome:
    env = make_env(task.parent, agent, **changes)
    return (await env.run_group([request_for(example_of(task))]))["r-0"]


# -- what comes out -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("agent", "reward"), [("oracle", 1.0), ("nop", 0.0)])
async def test_the_oracle_gets_full_marks_and_doing_nothing_gets_none(
    tmp_path: Path, agent: str, reward: float
) -> None:
    env = make_env(make_tasks(tmp_path / "tasks", 2), AgentConfig(name=agent))
    dataset = await env.create_dataset("train", tmp_path / "data")
    outcomes = await env.run_group([request_for(dataset[0], f"r-{number}") for number in range(2)])
    assert outcomes == {f"r-{number}": RolloutOutcome({"reward": reward}, "finished") for number in range(2)}


async def test_several_rewards_come_out_by_name_as_floats(tmp_path: Path) -> None:
    verify = (
        """mkdir -p "$ROOT/logs/verifier"; echo '{"format": 1, "speed": 0.25}' > "$ROOT/logs/verifier/reward.json" """
    )
    outcome = await one_outcome(make_task(tmp_path / "tasks" / "one", verify=verify), AgentConfig(name="nop"))
    assert outcome.rewards == {"format": 1.0, "speed": 0.25}
    assert {type(value) for value in outcome.rewards.values()} == {float}


async def test_details_of_the_reward_kit_add_partial_credit(tmp_path: Path) -> None:
    verify = """
    echo 0 > "$ROOT/logs/verifier/reward.txt"
    echo '{"criteria": [{"name": "a", "value": 1, "weight": 3}, {"name": "b", "value": 0}]}' \
        > "$ROOT/logs/verifier/reward-details.json"
    """
    outcome = await one_outcome(make_task(tmp_path / "tasks" / "one", verify=verify), AgentConfig(name="nop"))
    assert outcome.rewards == {"reward": 0.0, "partial_credit": 0.75}


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ("ContextLengthExceededError", "context_exceeded"),
        ("ContextWindowExceededError", "context_exceeded"),
        ("OutputLengthExceededError", "output_exceeded"),
        ("SandboxBuildFailedError", "sandbox_error"),
        ("SomethingOfItsOwn", "harness_error"),
    ],
)
async def test_an_agents_exception_is_told_by_its_name_and_leaves_no_rewards(
    task: Path, error: str, reason: str
) -> None:
    outcome = await one_outcome(task, small("Failing", error=error))
    assert outcome == RolloutOutcome({}, reason, f"{error}: as asked")


async def test_an_agent_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    outcome = await one_outcome(make_task(tmp_path / "tasks" / "one", agent_s=0.2), small("Endless"))
    assert (outcome.rewards, outcome.termination_reason) == ({}, "harness_timeout")
    assert outcome.error is not None
    assert outcome.error.startswith("AgentTimeoutError: ")


async def test_a_verifier_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    task = make_task(tmp_path / "tasks" / "one", verify="exec sleep 60", verifier_s=0.3)
    outcome = await one_outcome(task, AgentConfig(name="nop"))
    assert (outcome.rewards, outcome.termination_reason) == ({}, "verifier_timeout")


async def test_a_sandbox_that_cannot_be_made_is_told_as_such(task: Path) -> None:
    trial = template(environment=EnvironmentConfig(import_path=f"{agents.HERE}:Unbuildable"))
    outcome = await one_outcome(task, AgentConfig(name="nop"), trial=trial)
    assert outcome == RolloutOutcome({}, "sandbox_error", "SandboxBuildFailedError: no such image")


async def test_a_verifier_without_a_reward_file_is_no_fault_of_the_model(tmp_path: Path) -> None:
    task = make_task(tmp_path / "tasks" / "one", verify="true")
    outcome = await one_outcome(task, AgentConfig(name="nop"))
    assert (outcome.rewards, outcome.termination_reason) == ({}, "harness_error")
    assert "RewardFileNotFoundError" in str(outcome.error)


async def test_a_trial_that_cannot_be_created_is_an_outcome_and_logged(
    tmp_path: Path, task: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (task / "task.toml").unlink()
    outcome = await one_outcome(task, AgentConfig(name="nop"))
    assert (outcome.rewards, outcome.termination_reason) == ({}, "harness_error")
    assert outcome.error is not None
    assert outcome.error.startswith("FileNotFoundError: ")
    [record] = [one for one in caplog.records if one.getMessage().startswith("harbor.rollout.failed")]
    assert record.getMessage() == "harbor.rollout.failed rollout_id=r-0 task=example-1"
    assert record.name == "benchmax.envs.harbor.env"
    assert record.exc_info is not None


async def test_a_budget_that_the_harness_reports_keeps_its_rewards(task: Path) -> None:
    outcome = await one_outcome(
        task, small("Commanding", command="echo 42 > answer", metadata={"termination_reason": "max_turns_exceeded"})
    )
    assert outcome == RolloutOutcome({"reward": 1.0}, "max_turns_exceeded")


async def test_a_failing_trial_leaves_its_siblings_alone(task: Path) -> None:
    env = make_env(task.parent, small("FailingOnce", error="Unlucky"))
    example = example_of(task)
    outcomes = await env.run_group([request_for(example, f"r-{number}") for number in range(4)])
    assert sorted(outcome.termination_reason for outcome in outcomes.values()) == ["finished"] * 3 + ["harness_error"]


async def test_what_happens_is_logged(task: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "benchmax.envs.harbor.env")
    await one_outcome(task, AgentConfig(name="nop"))
    lines = [one.getMessage() for one in caplog.records if one.name == "benchmax.envs.harbor.env"]
    assert lines == [
        f"harbor.rollout.start rollout_id=r-0 task=example-1 sandbox={SANDBOX} harness=nop model=tiny",
        "harbor.rollout.done rollout_id=r-0 termination_reason=finished rewards={'reward': 0.0}",
    ]


async def test_a_cancelled_group_ends_its_sandboxes(task: Path) -> None:
    env = make_env(task.parent, small("Endless"))
    running = asyncio.create_task(env.run_group([request_for(example_of(task), f"r-{number}") for number in range(2)]))
    while agents.Endless.running < 2 and not running.done():
        await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert FolderSandbox.live == 0


# -- what goes in ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["tiny", "openai/tiny"])
async def test_the_harness_gets_the_requests_model_url_and_token(task: Path, model: str) -> None:
    preset = {"OPENAI_API_KEY": "preset", "OPENAI_BASE_URL": "preset", "OPENAI_API_BASE": "preset", "OTHER": "kept"}
    agent = AgentConfig(import_path=f"{agents.HERE}:Telling", env=preset)
    env = make_env(task.parent, agent)
    request = request_for(example_of(task), model=model, auth=StaticBearerAuth("secret-of-the-request"))
    await env.run_group([request])
    given, variables, _ = agents.Telling.told
    assert given == "openai/tiny"
    assert variables == {
        "OPENAI_API_KEY": "secret-of-the-request",
        "OPENAI_BASE_URL": BASE_URL,
        "OPENAI_API_BASE": BASE_URL,
        "OTHER": "kept",
    }
    assert (agent.model_name, agent.env) == (None, preset)


async def test_the_verifier_gets_nothing_of_the_request(tmp_path: Path) -> None:
    verify = 'env > "$ROOT/logs/verifier/env.txt"; echo 1 > "$ROOT/logs/verifier/reward.txt"'
    task = make_task(tmp_path / "tasks" / "one", verify=verify)
    trial = template(AgentConfig(name="nop"), verifier=VerifierConfig(env={"OF_THE_VERIFIER": "yes"}))
    await one_outcome(task, AgentConfig(name="nop"), trial=trial)
    seen = Path("trials/r-0/verifier/env.txt").read_text()
    assert "OF_THE_VERIFIER=yes" in seen
    assert "token-of-this-request" not in seen
    assert "OPENAI" not in seen


async def test_the_token_is_in_no_file_of_the_trial(task: Path) -> None:
    await one_outcome(task, AgentConfig(name="nop"))
    files = [path for path in Path("trials").rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if b"token-of-this-request" in path.read_bytes()]


async def test_the_template_reaches_the_trial(tmp_path: Path, task: Path) -> None:
    more = tmp_path / "more.md"
    more.write_text("And be quick.")
    trial = template(
        small("Telling"),
        trials_dir=tmp_path / "elsewhere",
        timeout_multiplier=2.0,
        agent_timeout_multiplier=3.0,
        verifier_timeout_multiplier=4.0,
        agent_setup_timeout_multiplier=5.0,
        environment_build_timeout_multiplier=6.0,
        artifacts=["/made/out.txt"],
        extra_instruction_paths=[more],
    )
    await one_outcome(task, AgentConfig(name="nop"), trial=trial)
    folder = tmp_path / "elsewhere" / "r-0"
    used = json.loads((folder / "config.json").read_text())
    multipliers = {name: value for name, value in used.items() if name.endswith("timeout_multiplier")}
    assert multipliers == {
        "timeout_multiplier": 2.0,
        "agent_timeout_multiplier": 3.0,
        "verifier_timeout_multiplier": 4.0,
        "agent_setup_timeout_multiplier": 5.0,
        "environment_build_timeout_multiplier": 6.0,
    }
    assert used["artifacts"] == ["/made/out.txt"]
    assert "And be quick." in agents.Telling.told[2]


async def test_headers_are_asked_for_once_per_rollout(task: Path) -> None:
    asked: list[ModelRequestContext] = []

    class Counting:
        async def headers_for_request(self, context: ModelRequestContext) -> Mapping[str, str]:
            asked.append(context)
            return {"Authorization": "Bearer counted"}

    env = make_env(task.parent, AgentConfig(name="nop"))
    await env.run_rollout(request_for(example_of(task), auth=Counting()))
    assert asked == [ModelRequestContext(BASE_URL, "tiny", "r-0")]


# -- contract errors ------------------------------------------------------------------------------------------


class Headers:
    """A credential source that gives fixed headers."""

    def __init__(self, **headers: str) -> None:
        self.headers = headers

    async def headers_for_request(self, context: ModelRequestContext) -> Mapping[str, str]:
        return self.headers


@pytest.mark.parametrize(
    "auth", [Headers(), Headers(authorization="Bearer x"), Headers(Authorization="Basic x"), Headers(Authorization="x")]
)
async def test_only_a_bearer_token_can_be_handed_to_a_harness(task: Path, auth: Headers) -> None:
    env = make_env(task.parent, AgentConfig(name="nop"))
    with pytest.raises(ValueError, match="Bearer token"):
        await env.run_rollout(request_for(example_of(task), auth=auth))


@pytest.mark.parametrize("rollout_id", ["../up", "a/b", ".hidden", "-dash", "a b", "é", "a\n", "_x"])
async def test_a_rollout_id_must_be_able_to_name_a_folder(task: Path, rollout_id: str) -> None:
    env = make_env(task.parent, AgentConfig(name="nop"))
    with pytest.raises(ValueError, match="rollout_id"):
        await env.run_rollout(request_for(example_of(task), rollout_id))
    assert not Path("trials").exists()


async def test_a_payload_must_be_a_task(task: Path) -> None:
    env = make_env(task.parent, AgentConfig(name="nop"))
    wrong: Any = Example("x", {"path": str(task)})
    with pytest.raises(TypeError, match="TaskConfig"):
        await env.run_rollout(request_for(wrong))


async def test_a_contract_error_is_raised_after_the_siblings_have_settled(task: Path) -> None:
    env = make_env(task.parent, AgentConfig(name="nop"))
    example = example_of(task)
    with pytest.raises(ValueError, match="Bearer token"):
        await env.run_group([request_for(example, "bad", auth=Headers()), request_for(example, "good")])
    assert json.loads(Path("trials/good/result.json").read_text())["finished_at"]


# -- concurrency ----------------------------------------------------------------------------------------------


async def test_trials_at_once_are_limited_over_all_groups(task: Path) -> None:
    FolderSandbox.most_live = 0
    env = make_env(task.parent, AgentConfig(name="nop"), max_concurrent_trials=2)
    example = example_of(task)
    groups = [[request_for(example, f"g{group}-{number}") for number in range(3)] for group in range(2)]
    outcomes = await asyncio.gather(*(env.run_group(group) for group in groups))
    assert FolderSandbox.most_live == 2
    assert [outcome.termination_reason for group in outcomes for outcome in group.values()] == ["finished"] * 6


def test_an_environment_outlives_an_event_loop(tmp_path: Path) -> None:
    env = make_env(make_tasks(tmp_path / "tasks", 2), AgentConfig(name="nop"), max_concurrent_trials=1)

    async def once(name: str) -> None:
        first, second = await asyncio.gather(*(env.create_dataset("train", tmp_path / "data") for _ in range(2)))
        assert first[0].id == second[0].id
        await env.run_group([request_for(first[0], f"{name}-{number}") for number in range(2)])

    asyncio.run(once("a"))
    asyncio.run(once("b"))
