"""Shopping with two tools: the model fills a basket and asks for its price."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
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

PRICES = {"apple": 40, "bread": 320, "milk": 110, "pear": 55}


def to_example(row: JsonRow) -> Example[JsonRow]:
    """Make an example of one line of the data: `{"question": ..., "answer": ...}`."""
    system = f"Buy with the tools, then reply with the price in cents alone. There are: {', '.join(PRICES)}."
    messages = [{"role": "system", "content": system}, {"role": "user", "content": row["question"]}]
    return Example(canonical_example_id(row), {"prompt_messages": messages, "answer": row["answer"]})


def tool(name: str, description: str, **properties: dict[str, Any]) -> Tool:
    """Describe a tool whose arguments are all required."""
    schema: dict[str, object] = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


class Starter(BaseEnv):
    """At most six turns. Every rollout has a basket of its own."""

    max_turns = 6
    max_tool_calls = 12

    def __init__(self) -> None:
        super().__init__()
        # one instance serves many rollouts at the same time, so what belongs to one is kept under its id
        self.baskets: dict[str, dict[str, int]] = {}

    async def create_dataset(
        self, split: DatasetSplit, base_dir: Path, *, max_examples: int | None = None
    ) -> Dataset[JsonRow]:
        """Read `train.jsonl` or `eval.jsonl` of the data folder."""
        return JsonlDataset(base_dir / f"{split}.jsonl", row_to_example=to_example, max_examples=max_examples)

    @asynccontextmanager
    async def rollout_context(self, rollout_id: str, example: Example[JsonRow]) -> AsyncIterator[None]:
        """Everything of a rollout happens inside, its reward included."""
        self.baskets[rollout_id] = {}
        try:
            yield
        finally:
            del self.baskets[rollout_id]

    async def list_tools(self) -> list[Tool]:
        """Say what the model may call."""
        item = {"type": "string", "description": "what to put into the basket"}
        count = {"type": "integer", "description": "how many of it", "minimum": 1}
        return [
            tool("put", "Put something into the basket.", item=item, count=count),
            tool("price", "Get the price of everything in the basket, in cents."),
        ]

    async def run_tool(self, rollout_id: str, tool_name: str, **tool_args: Any) -> dict[str, Any]:
        """Answer one call; the arguments come from the model and may be anything."""
        basket = self.baskets[rollout_id]
        if tool_name == "price":
            return {"cents": sum(PRICES[item] * count for item, count in basket.items())}
        item, count = tool_args.get("item"), tool_args.get("count")
        # the model reads what was wrong and may try again; an exception would end the rollout
        if item not in PRICES:
            return {"error": f"There is no {item!r}. There are: {', '.join(PRICES)}."}
        if not isinstance(count, int) or count < 1:
            return {"error": "count must be a whole number of at least 1."}
        basket[item] = basket.get(item, 0) + count
        return {"basket": basket}

    async def compute_reward(self, rollout: BaseRollout) -> RewardMap:
        """Score one rollout: is the price right, and was every call a good one?"""
        answer = str(rollout.messages[-1].get("content")).strip()
        results = [str(message.get("content")) for message in rollout.messages if message["role"] == "tool"]
        flawless = bool(results) and not any('"error"' in result for result in results)
        return {"correct": float(answer == str(rollout.example_args["answer"])), "flawless": float(flawless)}
