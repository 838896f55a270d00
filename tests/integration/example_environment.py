"""Runs an example of this repository in this process, against a model server."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmax.envs import DatasetSplit, Environment, RolloutOutcome, RolloutRequest
from runner.models import SampleAuth
from tests.integration.model_process import RunningModel

EXAMPLES = Path(__file__).parents[2] / "examples"


def load_example(name: str) -> ModuleType:
    """Import `examples/<name>/<name>.py` under its own name, as a bundle would."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / name / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def run_groups(
    env: Environment[Any, Any], model: RunningModel, data: Path, *, split: DatasetSplit, examples: int, group_size: int
) -> list[Mapping[str, RolloutOutcome]]:
    """Run the first examples of a split, one group each; outcomes by rollout id `<position>-<id>-<k>`."""
    dataset = await env.create_dataset(split, data, max_examples=examples)
    groups = []
    for position, example in enumerate(dataset):
        ids = [f"{position}-{example.id[:8]}-{k}" for k in range(group_size)]
        requests = [RolloutRequest(i, example, "mock", model.base_url, SampleAuth(), split) for i in ids]
        groups.append(await env.run_group(requests))
    return groups
