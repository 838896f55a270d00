"""Environments for jobs: they ask for products, and take their rows from files where there are some."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmax.auth import InjectedAuth
from benchmax.envs import Dataset, RewardMap, RolloutRequest
from tests.validation.zoo.sound import Sound, ask


class Asks(Sound):
    """Reads `<split>.jsonl`, if it is there, and says in its output which file it has read."""

    async def create_dataset(
        self, split: Any, base_dir: Path, *, max_examples: int | None = None
    ) -> Dataset[dict[str, Any]]:
        file = base_dir / f"{split}.jsonl"
        rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else self.rows()
        return Dataset([self.example(row) for row in rows[:max_examples]])


class Samples(Asks):
    """Sets how answers are sampled, which is for the trainer to do, and caps their length."""

    def controls(self) -> dict[str, Any]:
        return {"temperature": 0.5, "max_tokens": 50}


class Unloadable(Asks):
    """Its constructor raises."""

    def __init__(self) -> None:
        raise KeyError("settings")


class Judged(Asks):
    """Is scored by a judge at an address that it is given."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def score(
        self, request: RolloutRequest[dict[str, Any]], reason: str, messages: list[dict[str, Any]]
    ) -> RewardMap:
        body = {"messages": [{"role": "user", "content": f"Is {messages[-1].get('content')} right?"}]}
        said = await ask(InjectedAuth("judge"), self.url, "a-judge", request.rollout_id, body)
        return {**await super().score(request, reason, messages), "judged": float(len(said["content"]) > 0)}
