"""Trials that end in every way there is, in sandboxes of this host."""

from __future__ import annotations

import os
from pathlib import Path

# a library of Harbor fetches a list of prices when it is loaded
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

AGENT = BundledAgentSource.from_directory(Path(__file__).parent, files=["acting_agent.py"])


class Acting(HarborEnv):
    """Trials of the tasks below its data folder, by an agent that does what the rollout's id says."""

    def __init__(self) -> None:
        super().__init__(
            dataset=DatasetConfig(path=Path("tasks")),
            trial=HarborTrialTemplate(
                agent=BundledHarborAgent(AgentConfig(import_path="acting_agent:ActingAgent"), AGENT),
                environment=EnvironmentConfig(import_path="benchmax.envs.harbor.local:LocalSandbox"),
                verifier=VerifierConfig(),
            ),
            requires_public_model_endpoint=False,
        )

    async def create_dataset(
        self, split: DatasetSplit, base_dir: Path, *, max_examples: int | None = None
    ) -> HarborDataset:
        tasks = DatasetConfig(path=base_dir / "tasks")
        return await HarborDataset.create(tasks, base_dir=base_dir / "out", max_examples=max_examples)
