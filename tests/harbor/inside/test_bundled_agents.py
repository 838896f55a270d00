"""Agents whose source travels: loaded where they are needed, beside other revisions of themselves."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from harbor.models.trial.config import AgentConfig

from benchmax.bundle import dump_bundle, load_bundle
from benchmax.envs import RolloutOutcome
from benchmax.envs.harbor import BundledAgentSource, BundledHarborAgent, HarborEnv
from tests.harbor.inside.lab import example_of, make_env, make_task, request_for

AGENT = b"""
from pathlib import Path
from harbor.agents.base import BaseAgent
from .parts import ANSWER

class Mine(BaseAgent):
    @staticmethod
    def name(): return "mine"
    def version(self): return (Path(__file__).parent / "version.txt").read_text()
    async def setup(self, environment): pass
    async def run(self, instruction, environment, context):
        await environment.exec(f"echo {ANSWER} > answer")

class NoAgent: pass
"""


def source(answer: str = "42", **more: bytes) -> BundledAgentSource:
    return BundledAgentSource.from_files(
        {
            "team/mine.py": AGENT,
            "team/parts/__init__.py": f"ANSWER = {answer!r}\n".encode(),
            "team/version.txt": answer.encode(),
            **more,
        }
    )


def agent(answer: str = "42", name: str = "Mine", **config: Any) -> BundledHarborAgent:
    return BundledHarborAgent(AgentConfig(import_path=f"team.mine:{name}", **config), source(answer))


async def test_a_bundled_agent_runs(tmp_path: Path) -> None:
    task = make_task(tmp_path / "tasks" / "one")
    env = make_env(task.parent, agent())
    outcomes = await env.run_group([request_for(example_of(task), f"r-{number}") for number in range(2)])
    assert list(outcomes.values()) == [RolloutOutcome({"reward": 1.0}, "finished")] * 2


async def test_revisions_of_one_agent_run_side_by_side(tmp_path: Path) -> None:
    task = make_task(tmp_path / "tasks" / "one")
    rewards = {}
    for answer in ("42", "43"):
        env = make_env(task.parent, agent(answer))
        rewards[answer] = (await env.run_rollout(request_for(example_of(task), f"r-{answer}"))).rewards
    assert rewards == {"42": {"reward": 1.0}, "43": {"reward": 0.0}}


def test_preparing_leaves_the_configuration_as_it_was() -> None:
    bundled = agent(kwargs={"deep": {"list": []}})
    before = bundled.config.model_copy(deep=True)
    prepared = bundled._harbor_config()
    prepared.kwargs["deep"]["list"].append(1)
    assert bundled.config == before
    package, _, name = str(prepared.import_path).partition(":")
    assert package.startswith("_benchmax_harbor_agent_")
    assert package.endswith(".team.mine")
    assert name == "Mine"


def test_a_source_is_loaded_once_from_many_threads_and_sys_path_is_left_alone() -> None:
    path = list(sys.path)
    with ThreadPoolExecutor(8) as pool:
        paths = set(pool.map(lambda _: agent("44")._harbor_config().import_path, range(16)))
    assert len(paths) == 1
    assert sys.path == path


def test_the_written_source_is_read_only_and_goes_with_the_process(tmp_path: Path) -> None:
    code = """
import os, sys
from pathlib import Path
from tests.harbor.inside.test_bundled_agents import agent
prepared = agent()._harbor_config()
file = Path(sys.modules[prepared.import_path.partition(":")[0]].__file__)
assert oct(file.stat().st_mode & 0o777) == "0o400", oct(file.stat().st_mode)
assert oct(file.parent.stat().st_mode & 0o777) == "0o500"
if os.fork() == 0:
    sys.exit(0)
os.wait()
assert file.is_file()
print(file.parents[1])
"""
    root = str(Path(__file__).parents[3])
    command = [sys.executable, "-P", "-c", f"import sys; sys.path.append({root!r})\n{code}"]
    finished = subprocess.run(command, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    assert not Path(finished.stdout.strip()).exists()


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"import_path": "team.mine"}, "module.path:ClassName"),
        ({"import_path": "team.mine:"}, "module.path:ClassName"),
        ({"import_path": "team/mine:Mine"}, "module.path:ClassName"),
        ({"import_path": "team..mine:Mine"}, "module.path:ClassName"),
        ({"import_path": "team.other:Mine"}, "not in its source"),
        ({"import_path": "team:Mine"}, "not in its source"),
        ({"import_path": "team.mine:Mine", "name": "oracle"}, "no name"),
        ({"name": "oracle"}, "no name"),
    ],
)
def test_a_configuration_must_name_a_class_in_the_source(config: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        BundledHarborAgent(AgentConfig(**config), source())


def test_a_package_may_be_the_module() -> None:
    BundledHarborAgent(AgentConfig(import_path="team.parts:Mine"), source())


def test_other_types_are_refused() -> None:
    wrong: Any = {"import_path": "team.mine:Mine"}
    with pytest.raises(TypeError, match="AgentConfig"):
        BundledHarborAgent(wrong, source())
    with pytest.raises(TypeError, match="BundledAgentSource"):
        BundledHarborAgent(AgentConfig(import_path="team.mine:Mine"), wrong)


def test_a_class_that_is_not_there_or_no_agent_is_refused_when_it_is_loaded() -> None:
    with pytest.raises(ValueError, match="no class 'Gone'"):
        agent(name="Gone")._harbor_config()
    with pytest.raises(TypeError, match="BaseAgent"):
        agent(name="NoAgent")._harbor_config()


async def test_an_agent_that_cannot_be_imported_is_a_contract_error(tmp_path: Path) -> None:
    task = make_task(tmp_path / "tasks" / "one")
    broken = BundledAgentSource.from_files({"mine.py": b"import no_such_module_here"})
    env = make_env(task.parent, BundledHarborAgent(AgentConfig(import_path="mine:Mine"), broken))
    with pytest.raises(ModuleNotFoundError, match="no_such_module_here"):
        await env.run_group([request_for(example_of(task))])


def test_what_a_configuration_holds_is_not_shown() -> None:
    assert "sesame" not in repr(agent(env={"TOKEN": "sesame"}))


async def test_a_bundle_takes_the_source_along(tmp_path: Path) -> None:
    task = make_task(tmp_path / "tasks" / "one")
    made = make_env(task.parent, agent("42"), max_concurrent_trials=1)
    arguments = {"dataset": made._dataset, "trial": made._trial, "max_concurrent_trials": 1}
    bundle = dump_bundle(HarborEnv, constructor_args=arguments, pip_dependencies=["harbor"])
    assert AGENT in bundle.pickled
    env = load_bundle(bundle)
    assert isinstance(env, HarborEnv)
    assert env._trial.agent == made._trial.agent
    outcomes = await env.run_group([request_for(example_of(task))])
    assert outcomes == {"r-0": RolloutOutcome({"reward": 1.0}, "finished")}
