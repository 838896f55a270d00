"""Tasks for the shell in Harbor's format, each in a sandbox of its own, worked on by an agent that is in the bundle.

It needs Python 3.12 and Harbor, which `benchmax bundle` puts into the bundle's own venv. The mock knows what to do in
each task; a small real model does not, and is graded all the same.

    benchmax bundle examples/harbor/shell.py:Shell --out out/shell --python 3.12 --pip 'benchmax[harbor]'
    benchmax run out/shell --data examples/harbor --model mock:examples/harbor/mock.json --group-size 4
    benchmax run out/shell --data examples/harbor --model local --group-size 1 --credentials gateway
"""

import os
from pathlib import Path

# a library of Harbor fetches a list of prices when it is loaded, which is of no use here
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

from harbor.models.job.config import DatasetConfig
from harbor.models.trial.config import AgentConfig, EnvironmentConfig, VerifierConfig

from benchmax.envs import DatasetSplit
from benchmax.envs.harbor import (
    BundledAgentSource,
    BundledHarborAgent,
    HarborDataset,
    HarborEnv,
    HarborTrialTemplate,
)

# read when the bundle is made, and part of it
AGENT = BundledAgentSource.from_directory(Path(__file__).parent / "agent", files=["shell_agent.py", "prompt.txt"])
SANDBOX = "benchmax.envs.harbor.local:LocalSandbox"


class Shell(HarborEnv):
    """One trial for each rollout, without Docker.

    Args:
        agent: `shell` for the agent of this bundle; `oracle` to run the tasks' own solutions; `nop` to do nothing.
    """

    def __init__(self, agent: str = "shell") -> None:
        super().__init__(
            # of no use for the tasks below, which come with the data
            dataset=DatasetConfig(path=Path("tasks")),
            trial=HarborTrialTemplate(
                agent=(
                    BundledHarborAgent(AgentConfig(import_path="shell_agent:ShellAgent"), AGENT)
                    if agent == "shell"
                    else AgentConfig(name=agent)
                ),
                environment=EnvironmentConfig(import_path=SANDBOX),
                verifier=VerifierConfig(),
            ),
            # the agent asks the model from this machine
            requires_public_model_endpoint=False,
        )

    async def create_dataset(
        self, split: DatasetSplit, base_dir: Path, *, max_examples: int | None = None
    ) -> HarborDataset:
        tasks = DatasetConfig(path=base_dir / "tasks")
        return await HarborDataset.create(tasks, base_dir=base_dir / "out", max_examples=max_examples)
