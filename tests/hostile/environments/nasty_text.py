"""An environment that puts terminal commands into every text that a person may get to see of it."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import Any

from benchmax.envs import Dataset, Environment, Example, RolloutAttempt, RolloutFailure, RolloutRequest

NASTY = "\x1b[2J\x1b]0;title\x07\x9b31m\u202e\u200b\ud800\x00\r\x08\x7f"


class NastyText(Environment[str, RolloutAttempt]):
    def __init__(self, place: str = "") -> None:
        self.place = place
        sys.stderr.write(f"printed {NASTY}\n")
        logging.getLogger(f"logger{NASTY}").error(f"logged {NASTY}")
        if place == "constructor":
            raise ValueError(f"constructor {NASTY}")
        if place == "exit":
            os._exit(3)

    async def create_dataset(self, split: Any, base_dir: Path, *, max_examples: int | None = None) -> Dataset[str]:
        if self.place == "dataset":
            raise type(f"Error{NASTY}", (Exception,), {})(f"dataset {NASTY}")
        return Dataset([Example(f"{name}\x1b[2J\u202e", name) for name in ("reason", "raises", "dies", "fine")])

    async def run_rollout(self, request: RolloutRequest[str]) -> RolloutAttempt:
        match request.example.payload:
            case "reason":
                raise RolloutFailure(f"reason{NASTY}", f"failure {NASTY}")
            case "raises":
                raise ValueError(f"rollout {NASTY}")
            case "dies":
                sys.stderr.write(f"last words {NASTY}\n")
                os._exit(3)
            case _:
                return RolloutAttempt(
                    rollout_id=request.rollout_id,
                    termination_reason="finished",
                    rewards={f"reward{NASTY}": 1.0},
                    error=f"error {NASTY}",
                )

    async def aclose(self) -> None:
        raise ValueError(f"aclose {NASTY}")
