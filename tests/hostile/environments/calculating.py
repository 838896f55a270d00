"""The stock environment with one tool, for a model whose tool calls are malformed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmax.envs import BaseEnv, BaseRollout, Dataset, Example

TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
    },
}


class Calculating(BaseEnv):
    max_turns = 2

    async def create_dataset(self, split: Any, base_dir: Path, *, max_examples: int | None = None) -> Dataset[Any]:
        prompt = [{"role": "user", "content": "add"}]
        return Dataset([Example("only", {"prompt_messages": prompt})])

    async def list_tools(self) -> list[Any]:
        return [TOOL]

    async def run_tool(self, rollout_id: str, tool_name: str, **tool_args: Any) -> Any:
        return tool_args.get("a", 0) + tool_args.get("b", 0)

    async def compute_reward(self, rollout: BaseRollout) -> dict[str, float]:
        answered = [message for message in rollout.messages if message["role"] == "tool"]
        return {"answered": float(len(answered))}
