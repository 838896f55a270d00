"""An environment that needs headers before any rollout: to be constructed, and to make its dataset."""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from pathlib import Path
from typing import Any

from benchmax.auth import InjectedAuth, ModelRequestContext
from benchmax.envs import Dataset, Environment, Example, RolloutAttempt, RolloutRequest


class Documents(Environment[str, RolloutAttempt]):
    """Its only example is named after what its headers said; the first rollout ends the worker."""

    def __init__(self, url: str, marker: str) -> None:
        self.url = url
        self.marker = Path(marker)
        found: list[str] = []
        # a constructor is synchronous, and holds up the loop while it waits
        context = contextvars.copy_context()
        thread = threading.Thread(target=lambda: found.append(context.run(asyncio.run, self.tenant("constructor"))))
        thread.start()
        thread.join()
        (self.constructed_for,) = found

    async def tenant(self, label: str) -> str:
        headers = await InjectedAuth("embedding").headers_for_request(ModelRequestContext(self.url, "e", label))
        return headers["X-Tenant"]

    async def create_dataset(self, split: Any, base_dir: Path, *, max_examples: int | None = None) -> Dataset[str]:
        return Dataset([Example(f"{self.constructed_for} and {await self.tenant('dataset')}", "")])

    async def run_rollout(self, request: RolloutRequest[str]) -> RolloutAttempt:
        if not self.marker.exists():
            self.marker.touch()
            os._exit(1)
        return RolloutAttempt(rollout_id=request.rollout_id, termination_reason="finished", rewards={"x": 1.0})
