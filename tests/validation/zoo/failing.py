"""Defects that show when a model or a judge fails."""

from __future__ import annotations

import asyncio
import json
import os
import re
from typing import Any

from benchmax.auth import InjectedAuth
from benchmax.envs import RewardMap, RolloutFailure
from tests.validation.zoo.rollouts import Conversation, Request
from tests.validation.zoo.sound import ModelFailedError, Sound, ask

ELSEWHERE = "http://127.0.0.1:9/v1"
"""The discard port."""


class LetsItRaise(Sound):
    finds = "failure-raises"

    async def failed(self, error: ModelFailedError, messages: Conversation) -> str:
        if error.code == "context_budget_exceeded":
            return "context_exceeded"
        raise error


class ZeroForAFailure(Sound):
    finds = "failure-scored"

    async def failed(self, error: ModelFailedError, messages: Conversation) -> str:
        return "context_exceeded" if error.code == "context_budget_exceeded" else "finished"


class TriesForEver(Sound):
    finds = "failure-hangs"

    async def failed(self, error: ModelFailedError, messages: Conversation) -> str:
        if error.code == "context_budget_exceeded":
            return "context_exceeded"
        await asyncio.Event().wait()
        raise error


class EndsTheProcess(Sound):
    finds = "failure-kills"

    async def failed(self, error: ModelFailedError, messages: Conversation) -> str:
        if error.code == "context_budget_exceeded":
            return "context_exceeded"
        os._exit(1)


class BlamesEverybody(Sound):
    finds = "failure-spreads"
    down = False

    async def turn(self, request: Request, turn: int, messages: Conversation) -> dict[str, Any]:
        if self.down and turn:
            self.down = False
            raise RolloutFailure("model_error", "the model is down")
        return await super().turn(request, turn, messages)

    async def failed(self, error: ModelFailedError, messages: Conversation) -> str:
        self.down = error.code != "context_budget_exceeded"
        return await super().failed(error, messages)


class ScoresNoStump(Sound):
    finds = "budget-stop-unscored"

    async def run_rollout(self, request: Request) -> Any:
        attempt = await super().run_rollout(request)
        if attempt.termination_reason != "context_exceeded":
            return attempt
        return type(attempt)(
            rollout_id=attempt.rollout_id, termination_reason="context_exceeded", rewards={}, error="no last answer"
        )


class ContextIsAFailure(Sound):
    finds = "context-not-told"

    async def failed(self, error: ModelFailedError, messages: Conversation) -> str:
        raise RolloutFailure("model_error", str(error))


class TrustsArguments(Sound):
    finds = "tool-call-ends-rollout"

    def run_tool(self, call: dict[str, Any]) -> str:
        try:
            arguments = json.loads(call["function"]["arguments"])
            return str(arguments["left"] * arguments["right"])
        except (ValueError, KeyError, TypeError) as error:
            raise RolloutFailure("tool_error", str(error)) from error


class Judged(Sound):
    """Scored by a judge, whom the mock plays: what it says is as good as any number."""

    judge_url: str | None = None

    async def score(self, request: Request, reason: str, messages: Conversation) -> RewardMap:
        question = f"How many points from 0 to 9 has {messages[-1].get('content')!r}?"
        body = {"messages": [{"role": "user", "content": question}]}
        try:
            said = await ask(
                InjectedAuth("judge"), self.judge_url or request.base_url, "mock", request.rollout_id, body
            )
        except ModelFailedError as error:
            return self.outage(error)
        return {"points": float(len(re.sub(r"\D", "", str(said["content"])))), "length": float(len(str(messages)))}

    def outage(self, error: ModelFailedError) -> RewardMap:
        raise RolloutFailure("judge_error", str(error))


class JudgedElsewhere(Judged):
    """Its judge is at an address of its own, where nobody answers."""

    judge_url = ELSEWHERE


class ZeroForAnOutage(Judged):
    finds = "failure-scored"

    def outage(self, error: ModelFailedError) -> RewardMap:
        return {"points": 0.0, "length": 0.0}
