"""Environments that go wrong outside of rollouts: while constructed, listed or closed."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmax.envs import Dataset, Environment, Example, RolloutAttempt, RolloutRequest, ValidationDiagnostic


class Plain(Environment[None, RolloutAttempt]):
    async def create_dataset(self, split: Any, base_dir: Path, *, max_examples: int | None = None) -> Dataset[None]:
        return Dataset([Example("only", None)])

    async def run_rollout(self, request: RolloutRequest[None]) -> RolloutAttempt:
        return RolloutAttempt(rollout_id=request.rollout_id, termination_reason="finished", rewards={"x": 1.0})


class RaisesInConstructor(Plain):
    def __init__(self) -> None:
        raise ValueError("no such colour")


class ExitsInConstructor(Plain):
    def __init__(self) -> None:
        print("last words", file=sys.stderr, flush=True)
        os._exit(7)


class HangsInConstructor(Plain):
    def __init__(self) -> None:
        time.sleep(3600)


class OnlyOnce(Plain):
    """The first one to be constructed is ready; every other one fails."""

    def __init__(self, marker: str) -> None:
        Path(marker).touch(exist_ok=False)


class OnlyOnceAndExits(OnlyOnce):
    """The first one ends in its first rollout; no other one can be constructed."""

    async def run_rollout(self, request: RolloutRequest[None]) -> RolloutAttempt:
        os.write(2, b"going\n")
        os._exit(1)


class SlowTheSecondTime(Plain):
    """The first one ends in its first rollout; the second takes for ever to be constructed."""

    def __init__(self, marker: str) -> None:
        if Path(marker).exists():
            Path(f"{marker}.again").touch()
            time.sleep(3600)
        Path(marker).touch()

    async def run_rollout(self, request: RolloutRequest[None]) -> RolloutAttempt:
        os._exit(1)


class SlowDatasetTheSecondTime(Plain):
    """The first one ends in its first rollout; the second takes for ever to make the dataset."""

    def __init__(self, marker: str) -> None:
        self.marker = marker

    async def create_dataset(self, split: Any, base_dir: Path, *, max_examples: int | None = None) -> Dataset[None]:
        if Path(self.marker).exists():
            Path(f"{self.marker}.again").touch()
            await asyncio.sleep(3600)
        Path(self.marker).touch()
        return await super().create_dataset(split, base_dir)

    async def run_rollout(self, request: RolloutRequest[None]) -> RolloutAttempt:
        os._exit(1)


class RaisesInClose(Plain):
    async def aclose(self) -> None:
        raise RuntimeError("cannot close")


class HangsInClose(Plain):
    async def aclose(self) -> None:
        await asyncio.sleep(3600)


class HangsInDataset(Plain):
    async def create_dataset(self, split: Any, base_dir: Path, *, max_examples: int | None = None) -> Dataset[None]:
        time.sleep(3600)
        return Dataset([])


class ChangingDataset(Plain):
    async def create_dataset(self, split: Any, base_dir: Path, *, max_examples: int | None = None) -> Dataset[None]:
        return Dataset([Example(f"made-by-{os.getpid()}", None)])

    async def run_rollout(self, request: RolloutRequest[None]) -> RolloutAttempt:
        os._exit(1)


class Outspoken(Plain):
    scorable_termination_reasons = frozenset({"finished", "nearly"})

    @property
    def requires_public_model_endpoint(self) -> bool:
        return True

    def validation_diagnostics(self) -> Sequence[ValidationDiagnostic]:
        return [ValidationDiagnostic("warning", "harness_output_cap", "may be clamped", "agent.kwargs")]
