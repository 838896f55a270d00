"""Word problems to be solved with four calculator tools, over several turns."""

import operator
import re
from pathlib import Path
from typing import Any

from benchmax.envs import (
    BaseEnv,
    BaseRollout,
    Dataset,
    DatasetSplit,
    Example,
    JsonlDataset,
    JsonRow,
    RewardMap,
    Tool,
    canonical_example_id,
)

OPERATIONS = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
}


def to_example(row: JsonRow) -> Example[JsonRow]:
    """Make an example of one line of the data: `{"question": ..., "answer": ..., "steps": ...}`."""
    system = "Work the problem out with the tools, one step at a time. Then reply with the result alone."
    messages = [{"role": "system", "content": system}, {"role": "user", "content": row["question"]}]
    payload = {"prompt_messages": messages, "answer": row["answer"], "steps": row["steps"]}
    return Example(canonical_example_id(payload), payload)


class Calculator(BaseEnv):
    """The model calls tools until it knows the result; it may take at most six turns and eight calls."""

    max_turns = 6
    max_tool_calls = 8

    async def create_dataset(
        self, split: DatasetSplit, base_dir: Path, *, max_examples: int | None = None
    ) -> Dataset[JsonRow]:
        return JsonlDataset(base_dir / f"{split}.jsonl", row_to_example=to_example, max_examples=max_examples)

    async def list_tools(self) -> list[Tool]:
        number = {"type": "number"}
        parameters: dict[str, object] = {
            "type": "object",
            "properties": {"left": number, "right": number},
            "required": ["left", "right"],
        }
        return [
            {
                "type": "function",
                "function": {"name": name, "description": f"{name} two numbers", "parameters": parameters},
            }
            for name in OPERATIONS
        ]

    async def run_tool(self, rollout_id: str, tool_name: str, **tool_args: Any) -> dict[str, Any]:
        try:
            return {"value": OPERATIONS[tool_name](tool_args["left"], tool_args["right"])}
        except (KeyError, TypeError, ArithmeticError) as exc:
            # the model sees what went wrong and may try again; raising would end the rollout
            return {"error": f"{type(exc).__name__}: {exc}"}

    async def compute_reward(self, rollout: BaseRollout) -> RewardMap:
        numbers = re.findall(r"-?\d+(?:\.\d+)?", str(rollout.messages[-1].get("content")))
        correct = bool(numbers) and abs(float(numbers[-1]) - rollout.example_args["answer"]) < 1e-6
        calls = sum(message["role"] == "tool" for message in rollout.messages)
        needed = rollout.example_args["steps"]
        return {"correct": float(correct), "economy": needed / max(calls, needed) if correct else 0.0}
