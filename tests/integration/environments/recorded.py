"""Environments that note in a file outside which rollout runs, and ask a model once or twice."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmax.auth import InjectedAuth, create_async_openai_client
from benchmax.envs import (
    BaseEnv,
    BaseRollout,
    Dataset,
    Environment,
    Example,
    RewardMap,
    RolloutAttempt,
    RolloutRequest,
)


class Noted(BaseEnv):
    """Scores an answer by its length, and notes each rollout when it begins and when it has its reward.

    Args:
        notes: File that lines are added to.
        size: Examples.
        judge_url: Where a judge is asked under a binding of that name; `None` asks none.
    """

    max_turns = 1

    def __init__(self, *, notes: str, size: int = 2, judge_url: str | None = None) -> None:
        super().__init__()
        self.notes = notes
        self.size = size
        self.judge_url = judge_url

    async def create_dataset(
        self, split: Any, base_dir: Path, *, max_examples: int | None = None
    ) -> Dataset[dict[str, Any]]:
        words = (base_dir / "words.txt").read_text().split()
        return Dataset(
            [
                Example(f"example{i:04}", {"prompt_messages": [{"role": "user", "content": f"{words[0]} {i}"}]})
                for i in range(self.size)
            ]
        )

    async def compute_reward(self, rollout: BaseRollout) -> RewardMap:
        said = str(rollout.messages[-1].get("content") or "")
        rewards = {"length": float(len(said))}
        if self.judge_url is not None:
            rewards["judged"] = float(len(await self.ask("judge me", said)))
        self.note(rollout.rollout_id)
        return rewards

    async def ask(self, question: str, said: str) -> str:
        assert self.judge_url is not None
        async with create_async_openai_client(
            auth=InjectedAuth("judge"), base_url=self.judge_url, model="judge", request_id="judge"
        ) as client:
            answer = await client.chat.completions.create(
                model="judge", messages=[{"role": "user", "content": f"{question}: {said}"}]
            )
        return answer.choices[0].message.content or ""

    def note(self, text: str) -> None:
        descriptor = os.open(self.notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(descriptor, f"{text}\n".encode())
        os.close(descriptor)


class Compared(Noted):
    """Scores siblings together as well."""

    async def compute_group_rewards(self, rollouts: Sequence[BaseRollout]) -> Mapping[str, RewardMap]:
        if self.judge_url is not None:
            await self.ask("compare", str(len(rollouts)))
        return {rollout.rollout_id: {"siblings": float(len(rollouts))} for rollout in rollouts}


class Chatting(Environment[None, RolloutAttempt]):
    """Asks several things at once, whole and as streams, with a client that tries again; scores what it is told."""

    async def create_dataset(self, split: Any, base_dir: Path, *, max_examples: int | None = None) -> Dataset[None]:
        return Dataset([Example("example0000", None)])

    async def run_rollout(self, request: RolloutRequest[None]) -> RolloutAttempt:
        async with create_async_openai_client(
            model=request.model, base_url=request.base_url, auth=request.model_auth, request_id=request.rollout_id
        ) as client:

            async def ask(what: str) -> str:
                messages: Any = [{"role": "user", "content": what}]
                if not what.startswith("stream"):
                    answer = await client.chat.completions.create(model=request.model, messages=messages)
                    return answer.choices[0].message.content or ""
                stream = await client.chat.completions.create(model=request.model, messages=messages, stream=True)
                return "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])

            asked = ("whole one", "whole two", "stream one", "stream two")
            said = await asyncio.gather(*map(ask, asked))
        return RolloutAttempt(
            rollout_id=request.rollout_id,
            termination_reason="finished",
            rewards={what: float(sum(text.encode())) for what, text in zip(asked, said, strict=True)},
        )
