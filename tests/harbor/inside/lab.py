"""Tasks in Harbor's format, environments around them, and requests for their rollouts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harbor.models.job.config import DatasetConfig
from harbor.models.trial.config import AgentConfig, EnvironmentConfig, TaskConfig, VerifierConfig

from benchmax.envs import Example, ModelAuth, RolloutRequest, StaticBearerAuth
from benchmax.envs.harbor import BundledHarborAgent, HarborEnv, HarborTrialTemplate

SANDBOX = "tests.harbor.inside.folder_sandbox:FolderSandbox"
BASE_URL = "http://127.0.0.1:9/v1"

CONFIG = """
version = "1.0"

[agent]
timeout_sec = {agent_s}

[verifier]
timeout_sec = {verifier_s}

[environment]
"""

COMPARE = """
mkdir -p "$ROOT/logs/verifier"
if [ "$(cat answer 2>/dev/null)" = "{answer}" ]; then reward=1; else reward=0; fi
echo $reward > "$ROOT/logs/verifier/reward.txt"
"""


def make_task(
    folder: Path,
    answer: str = "42",
    *,
    verify: str = COMPARE,
    solve: str = "echo {answer} > answer",
    agent_s: float = 60.0,
    verifier_s: float = 60.0,
) -> Path:
    """Write a task that asks for a file `answer`."""
    for name in ("environment", "tests", "solution"):
        (folder / name).mkdir(parents=True)
    (folder / "task.toml").write_text(CONFIG.format(agent_s=agent_s, verifier_s=verifier_s))
    (folder / "instruction.md").write_text(f"Write {answer} to the file answer.\n")
    (folder / "environment" / "Dockerfile").write_text("FROM debian:12\n")
    (folder / "tests" / "test.sh").write_text(verify.replace("{answer}", answer))
    (folder / "solution" / "solve.sh").write_text(solve.replace("{answer}", answer))
    return folder


def make_tasks(folder: Path, count: int) -> Path:
    """Write a folder of tasks with different answers."""
    for number in range(count):
        make_task(folder / f"task-{number}", f"answer-{number}")
    return folder


def template(agent: AgentConfig | BundledHarborAgent | None = None, **changes: Any) -> HarborTrialTemplate:
    """A template with the folder sandbox, and the oracle unless told otherwise."""
    parts: dict[str, Any] = {
        "environment": EnvironmentConfig(import_path=SANDBOX),
        "verifier": VerifierConfig(),
        "trials_dir": Path("trials"),
    }
    return HarborTrialTemplate(agent or AgentConfig(name="oracle"), **{**parts, **changes})


def make_env(dataset: Path, agent: AgentConfig | BundledHarborAgent | None = None, **changes: Any) -> HarborEnv:
    """An environment over a folder of tasks."""
    parts = {"dataset": DatasetConfig(path=dataset), "trial": template(agent)}
    return HarborEnv(**{**parts, **changes})


def example_of(task: Path) -> Example[TaskConfig]:
    """An example of a task that is used where it lies."""
    return Example("example-1", TaskConfig(path=task, source="here"))


def request_for(
    example: Example[TaskConfig], rollout_id: str = "r-0", *, auth: ModelAuth | None = None, model: str = "tiny"
) -> RolloutRequest[TaskConfig]:
    """A request with a token that no test needs a model for."""
    return RolloutRequest(rollout_id, example, model, BASE_URL, auth or StaticBearerAuth("token-of-this-request"))
