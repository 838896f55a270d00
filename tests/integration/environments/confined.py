"""An environment that tries what a sandbox should keep it from, and says in its error text what became of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmax.envs import Dataset, Environment, Example, RolloutAttempt, RolloutRequest


def attempt(action: Callable[[], Any]) -> str:
    """Say whether something can be done."""
    try:
        action()
    except OSError:
        return "cannot"
    return "can"


class Confined(Environment[None, RolloutAttempt]):
    """Reads its examples from the data; each rollout looks around, or does what its example says."""

    def __init__(self, outside: str) -> None:
        self.outside = Path(outside)
        self.data = Path()

    async def create_dataset(self, split: Any, base_dir: Path, *, max_examples: int | None = None) -> Dataset[None]:
        self.data = base_dir
        return Dataset([Example(line, None) for line in (base_dir / "acts.txt").read_text().split()])

    async def run_rollout(self, request: RolloutRequest[None]) -> RolloutAttempt:
        found = getattr(self, request.example.id)()
        return RolloutAttempt(
            rollout_id=request.rollout_id, termination_reason="finished", rewards={"x": 1.0}, error=json.dumps(found)
        )

    def look(self) -> dict[str, Any]:
        """Try the files outside, and say who and where this is."""
        return {
            "read": attempt(self.outside.read_text),
            "write": attempt(lambda: self.outside.write_text("changed")),
            "venv": attempt(lambda: Path(sys.prefix, "planted").touch()),
            "data": attempt(lambda: (self.data / "acts.txt").write_text("changed")),
            "uid": os.getuid(),
            "home": attempt(lambda: (Path.home() / "note").touch()),
            "python": sys.base_prefix,
            "library": os.__file__,
        }

    def crash(self) -> None:
        """End as broken machine code does."""
        os.kill(os.getpid(), 11)

    def detach(self) -> None:
        """Leave a process behind that is in nobody's session."""
        subprocess.Popen(["/bin/sleep", "1000.25"], start_new_session=True)
