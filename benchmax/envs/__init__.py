"""Environments: data types, group execution, datasets, identity, and the stock model/tool loop."""

from benchmax.auth import InjectedAuth, ModelAuth, StaticBearerAuth, bind_model_auth
from benchmax.envs.base import BaseEnv, BaseRollout, JsonlDataset, JsonRow, Message, Messages, Tool
from benchmax.envs.dataset import Dataset
from benchmax.envs.environment import Environment
from benchmax.envs.identity import canonical_example_id
from benchmax.envs.shared_types import (
    DatasetSplit,
    Example,
    RewardMap,
    RolloutAttempt,
    RolloutFailure,
    RolloutOutcome,
    RolloutRequest,
    ValidationDiagnostic,
)

__all__ = [
    "BaseEnv",
    "BaseRollout",
    "Dataset",
    "DatasetSplit",
    "Environment",
    "Example",
    "InjectedAuth",
    "JsonRow",
    "JsonlDataset",
    "Message",
    "Messages",
    "ModelAuth",
    "RewardMap",
    "RolloutAttempt",
    "RolloutFailure",
    "RolloutOutcome",
    "RolloutRequest",
    "StaticBearerAuth",
    "Tool",
    "ValidationDiagnostic",
    "bind_model_auth",
    "canonical_example_id",
]
