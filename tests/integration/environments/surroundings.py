"""An environment that says what its interpreter would import, and from where."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmax.envs import Dataset, Environment, Example, RolloutAttempt, RolloutRequest


class Surroundings(Environment[None, RolloutAttempt]):
    """The error text of each rollout is a JSON object of what was found."""

    def __init__(self, modules: Sequence[str] = (), distribution: str = "") -> None:
        self.modules = list(modules)
        self.distribution = distribution

    async def create_dataset(self, split: Any, base_dir: Path, *, max_examples: int | None = None) -> Dataset[None]:
        return Dataset([Example("only", None)])

    async def run_rollout(self, request: RolloutRequest[None]) -> RolloutAttempt:
        origins = {}
        for name in self.modules:
            spec = importlib.util.find_spec(name)
            origins[name] = None if spec is None else spec.origin
        try:
            release = version(self.distribution) if self.distribution else ""
        except PackageNotFoundError:
            release = "none"
        found = {
            "series": f"{sys.version_info.major}.{sys.version_info.minor}",
            "origins": origins,
            "path": sys.path,
            "release": release,
        }
        return RolloutAttempt(
            rollout_id=request.rollout_id, termination_reason="finished", rewards={"x": 1.0}, error=json.dumps(found)
        )
