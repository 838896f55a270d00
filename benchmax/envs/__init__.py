"""Environments: data types, group execution, datasets, identity, and the stock model/tool loop.

The loop, in `benchmax.envs.base`, is loaded when it is first asked for.
"""

from typing import TYPE_CHECKING

from benchmax.auth import InjectedAuth, ModelAuth, StaticBearerAuth, bind_model_auth
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

if TYPE_CHECKING:
    from benchmax.envs.base import BaseEnv, BaseRollout, JsonlDataset, JsonRow, Message, Messages, Tool

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

_OF_THE_LOOP = frozenset({"BaseEnv", "BaseRollout", "JsonRow", "JsonlDataset", "Message", "Messages", "Tool"})


def __getattr__(name: str) -> object:
    if name not in _OF_THE_LOOP and name != "base":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # not `from benchmax.envs`, which would ask here again
    import benchmax.envs.base as base

    globals().update({loaded: getattr(base, loaded) for loaded in _OF_THE_LOOP})
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "base"})
