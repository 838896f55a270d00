"""A module that floods its output at import, reads from standard input and prints when it ends."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from benchmax.envs import Dataset, Environment, Example, RolloutAttempt, RolloutRequest


def flood() -> str:
    for number in range(100_000):
        print(f"line {number:06d} " + "x" * 88)
    os.write(1, b"raw bytes \xff\x00 on descriptor 1\n")
    os.write(2, b"raw bytes on descriptor 2\n")
    try:
        return input("a question nobody answers ")
    except EOFError:
        return "end of file"


class Noisy(Environment[None, RolloutAttempt]):
    def __init__(self) -> None:
        # by-value classes are imported by running their constructor's world; this is the bundle's import time
        self.answer = flood()

    async def create_dataset(self, split: Any, base_dir: Path, *, max_examples: int | None = None) -> Dataset[None]:
        return Dataset([Example("only", None)])

    async def run_rollout(self, request: RolloutRequest[None]) -> RolloutAttempt:
        sys.stdout.write("inside the rollout\n")
        return RolloutAttempt(
            rollout_id=request.rollout_id, termination_reason="finished", rewards={"x": 1.0}, error=self.answer
        )
