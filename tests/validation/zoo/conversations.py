"""Defects of conversations: what a trainer could not honour, and what does not repeat."""

from __future__ import annotations

import asyncio
import os
import random
from typing import Any

from benchmax.envs import RewardMap
from tests.validation.zoo.rollouts import Conversation, Request
from tests.validation.zoo.sound import MULTIPLY, Sound


class SetsTheTemperature(Sound):
    finds = "trainer_owned_model_control"

    def controls(self) -> dict[str, Any]:
        return {"temperature": 0.2}


class WantsLogprobs(Sound):
    finds = "unsupported_model_control"

    def controls(self) -> dict[str, Any]:
        return {"logprobs": True}


class CapsAnswers(Sound):
    finds = "harness_output_cap"

    def controls(self) -> dict[str, Any]:
        return {"max_tokens": 200}


class RewritesHistory(Sound):
    finds = "rewritten_history"

    async def turn(self, request: Request, turn: int, messages: Conversation) -> dict[str, Any]:
        messages[0]["content"] += "" if turn == 0 else " Be quick."
        return await super().turn(request, turn, messages)


class ChangesTools(Sound):
    finds = "changed_tools"

    def tools(self, turn: int) -> list[dict[str, Any]]:
        return [MULTIPLY] if turn == 0 else []


class AsksTwiceAtOnce(Sound):
    finds = "overlapping_generations"

    async def turn(self, request: Request, turn: int, messages: Conversation) -> dict[str, Any]:
        if turn:
            return await super().turn(request, turn, messages)
        first, _ = await asyncio.gather(*(Sound.turn(self, request, turn, messages) for _ in range(2)))
        return first


class RewardOfChance(Sound):
    finds = "reward-differs"

    async def score(self, request: Request, reason: str, messages: Conversation) -> RewardMap:
        rewards = dict(await super().score(request, reason, messages))
        return {**rewards, "style": random.random()} if reason == "finished" else rewards


class RewardOfAHash(Sound):
    finds = "reward-differs"

    async def score(self, request: Request, reason: str, messages: Conversation) -> RewardMap:
        rewards = dict(await super().score(request, reason, messages))
        return {**rewards, "style": hash(str(messages)) % 1000 / 1000}


class AnswersOfChance(Sound):
    """What the model is asked is left to chance, so are its answers: only the example makes the rewards differ."""

    async def score(self, request: Request, reason: str, messages: Conversation) -> RewardMap:
        rewards = await super().score(request, reason, messages)
        return {**rewards, "size": request.example.payload["answer"] / 100}


class PromptOfChance(AnswersOfChance):
    finds = "request-differs"

    def prompt(self, row: dict[str, Any]) -> str:
        return f"{row['question']} ({os.urandom(8).hex()})"


class ToolOfChance(AnswersOfChance):
    finds = "request-differs"

    def run_tool(self, call: dict[str, Any]) -> str:
        return f"{super().run_tool(call)} ({os.urandom(8).hex()})"


class LastExampleWins(Sound):
    finds = "interference"
    current: int = 0

    def prompt(self, row: dict[str, Any]) -> str:
        self.current = row["answer"]
        return super().prompt(row)

    async def score(self, request: Request, reason: str, messages: Conversation) -> RewardMap:
        return {"correct": float(str(self.current) in str(messages[-1].get("content")))}


class OnlyTheFirstCounts(Sound):
    """Rewards are not the same the second time, in whichever process."""

    finds = "interference"
    seen: tuple[str, ...] = ()

    async def score(self, request: Request, reason: str, messages: Conversation) -> RewardMap:
        self.seen = (*self.seen, request.rollout_id)
        return {**await super().score(request, reason, messages), "place": float(len(self.seen) % 3)}
