"""Environments whose rollouts are trials of Harbor: tasks, sandboxes and agents in Harbor's own formats.

Needs the extra `benchmax[harbor]`. Importing this package does not import Harbor; using it does.
"""

from benchmax.envs.harbor.bundled_agent import BundledAgentSource, BundledHarborAgent
from benchmax.envs.harbor.credentials import (
    CustomSandboxCredentials,
    DaytonaCredentials,
    ModalCredentials,
    SandboxCredentials,
)
from benchmax.envs.harbor.dataset import HarborDataset
from benchmax.envs.harbor.env import HarborEnv
from benchmax.envs.harbor.types import HarborTrialTemplate

__all__ = [
    "BundledAgentSource",
    "BundledHarborAgent",
    "CustomSandboxCredentials",
    "DaytonaCredentials",
    "HarborDataset",
    "HarborEnv",
    "HarborTrialTemplate",
    "ModalCredentials",
    "SandboxCredentials",
]
