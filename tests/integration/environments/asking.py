"""A model-and-tool environment with one tool that repeats what it is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmax.envs import BaseEnv, BaseRollout, Dataset, Example, JsonRow, RewardMap


class Asking(BaseEnv):
    max_turns = 6

    async def create_dataset(self, split: Any, base_dir: Path, *, max_examples: int | None = None) -> Dataset[JsonRow]:
        return Dataset([Example("only", {"prompt_messages": [{"role": "user", "content": "say something"}]})])

    async def list_tools(self) -> list[Any]:
        return [{"type": "function", "function": {"name": "echo", "parameters": {"type": "object"}}}]

    async def run_tool(self, rollout_id: str, tool_name: str, **tool_args: Any) -> Any:
        return tool_args["text"]

    async def compute_reward(self, rollout: BaseRollout) -> RewardMap:
        return {"turns": float(sum(message["role"] == "assistant" for message in rollout.messages))}
