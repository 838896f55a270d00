"""An environment whose rollouts do not come back, each in its own way, named by the example."""

from __future__ import annotations

import asyncio
import contextvars
import ctypes
import logging
import os
import re
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmax.envs import BaseEnv, BaseRollout, Dataset, Example, RolloutRequest

ACTS = (
    "fine", "sleeps", "swallows", "blocks", "c-call", "regex", "total", "thread", "scores", "waits", "pauses",
    "crashes", "tool",
)  # fmt: skip


class Stalling(BaseEnv):
    max_turns = 4

    async def create_dataset(
        self, split: Any, base_dir: Path, *, max_examples: int | None = None
    ) -> Dataset[dict[str, Any]]:
        self.base_dir = base_dir
        prompt = {"prompt_messages": [{"role": "user", "content": "go"}]}
        return Dataset([Example(act, {**prompt, "act": act}) for act in ACTS])

    async def run_rollout(self, request: RolloutRequest[dict[str, Any]]) -> BaseRollout:
        act = request.example.payload["act"]
        print("one whole line")
        logging.getLogger("env").info("logged")
        print("and one without an end", end="")
        if act == "tool":
            return await super().run_rollout(request)
        await getattr(self, act.replace("-", "_"))(request)
        return BaseRollout(
            rollout_id=request.rollout_id,
            termination_reason="finished",
            rewards={"x": 1.0},
            messages=[],
            example_args={"act": act},
        )

    async def fine(self, request: Any) -> None:
        """Just end."""

    async def sleeps(self, request: Any) -> None:
        await self.deeper(asyncio.Event())

    async def deeper(self, event: asyncio.Event) -> None:
        await event.wait()

    async def swallows(self, request: Any) -> None:
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                continue

    async def blocks(self, request: Any) -> None:
        (self.base_dir / f"blocking-{request.rollout_id}").touch()
        time.sleep(3600)

    async def c_call(self, request: Any) -> None:
        """Blocks in machine code, which lets other threads run meanwhile."""
        ctypes.CDLL(None).sleep(3600)

    async def regex(self, request: Any) -> None:
        re.match(r"(a+)+$", "a" * 60 + "b")

    async def total(self, request: Any) -> None:
        sum(range(10**15))

    async def thread(self, request: Any) -> None:
        """Something is printed for it by a thread, which only the loop can send, and that is blocked."""
        context = contextvars.copy_context()
        threading.Thread(target=context.run, args=(sys.stderr.write, "from a thread\n")).start()
        time.sleep(3600)

    async def scores(self, request: Any) -> None:
        """What takes for ever is the group's scoring."""

    async def waits(self, request: Any) -> None:
        (self.base_dir / f"waiting-{request.rollout_id}").touch()
        while not (self.base_dir / "go").exists():
            await asyncio.sleep(0.01)

    async def pauses(self, request: Any) -> None:
        """Block until told to go on."""
        while not (self.base_dir / "go").exists():
            time.sleep(0.01)

    async def crashes(self, request: Any) -> None:
        os._exit(3)

    async def list_tools(self) -> list[Any]:
        parameters = {"type": "object", "properties": {}}
        return [{"type": "function", "function": {"name": "tool", "parameters": parameters}}]

    async def run_tool(self, rollout_id: str, tool_name: str, **tool_args: Any) -> Any:
        if tool_args.get("block"):
            time.sleep(3600)
        if tool_args.get("wait"):
            await asyncio.sleep(3600)
        return "done"

    async def compute_group_rewards(self, rollouts: Sequence[BaseRollout]) -> Mapping[str, Mapping[str, float]] | None:
        if rollouts[0].example_args["act"] == "scores":
            await asyncio.sleep(3600)
        return None
