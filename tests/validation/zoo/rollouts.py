"""Defects of rollouts and their ends."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from typing import Any

from benchmax.envs import RewardMap, RolloutAttempt, RolloutFailure, RolloutRequest
from tests.validation.zoo.sound import Sound

Request = RolloutRequest[dict[str, Any]]
Conversation = list[dict[str, Any]]


class GroupRaises(Sound):
    finds = "group-raises"

    def run_tool(self, call: dict[str, Any]) -> str:
        return str(call["left"])


class WrongRolloutId(Sound):
    finds = "group-raises"

    async def run_rollout(self, request: Request) -> RolloutAttempt:
        attempt = await super().run_rollout(request)
        return RolloutAttempt(rollout_id="another", termination_reason=attempt.termination_reason, rewards={})


class EndsTheProcess(Sound):
    finds = "worker-died"

    async def score(self, request: Request, reason: str, messages: Conversation) -> RewardMap:
        os._exit(1)


class NeverEnds(Sound):
    finds = "rollout-timeout"

    async def score(self, request: Request, reason: str, messages: Conversation) -> RewardMap:
        await asyncio.Event().wait()
        return {}


class ScoringOfGroupsRaises(Sound):
    finds = "rollout-error"

    async def compute_group_rewards(self, rollouts: Sequence[RolloutAttempt]) -> Mapping[str, RewardMap]:
        raise ValueError("nothing to compare with")


class FailsOnPurpose(Sound):
    finds = "rollout-error"

    async def score(self, request: Request, reason: str, messages: Conversation) -> RewardMap:
        raise RolloutFailure("verifier_error", "the verifier is not there")


class FinishedWithoutRewards(Sound):
    finds = "rollout-error"

    async def score(self, request: Request, reason: str, messages: Conversation) -> RewardMap:
        return {}


class UnknownEnd(Sound):
    finds = "not-scored"

    def end(self, reason: str, messages: Conversation) -> str:
        return "gave_up"

    async def score(self, request: Request, reason: str, messages: Conversation) -> RewardMap:
        return {}


class AsksNobody(Sound):
    finds = "no-model-call"

    async def turn(self, request: Request, turn: int, messages: Conversation) -> dict[str, Any]:
        return {"role": "assistant", "content": "21"}


class AsksAnotherModel(Sound):
    finds = "group-raises"

    async def run_rollout(self, request: Request) -> RolloutAttempt:
        other = RolloutRequest(
            request.rollout_id, request.example, "another-model", request.base_url, request.model_auth, request.split
        )
        return await super().run_rollout(other)


class AsksOnce(Sound):
    finds = "single-call"

    def tools(self, turn: int) -> list[dict[str, Any]]:
        return []


class OwnEnd(Sound):
    finds = "reason-of-its-own"
    scorable_termination_reasons = Sound.scorable_termination_reasons | {"solved"}

    def end(self, reason: str, messages: Conversation) -> str:
        return "solved" if reason == "finished" else reason


class FailsAtFirst(Sound):
    """In one process: the others have another seed for hashes, by which this knows the first."""

    finds = "unsteady"
    failures = 3

    async def score(self, request: Request, reason: str, messages: Conversation) -> RewardMap:
        if os.environ["PYTHONHASHSEED"] == "0" and self.failures:
            self.failures -= 1
            raise RolloutFailure("verifier_error", "not warm yet")
        return await super().score(request, reason, messages)


class NotANumber(Sound):
    finds = "reward-invalid"

    async def score(self, request: Request, reason: str, messages: Conversation) -> RewardMap:
        return {"correct": float("nan")}


class NoNumberForTheGroup(Sound):
    finds = "reward-invalid"

    async def compute_group_rewards(self, rollouts: Sequence[RolloutAttempt]) -> Mapping[str, RewardMap]:
        return {rollout.rollout_id: {"rank": True} for rollout in rollouts}


class NoRewards(Sound):
    finds = "no-rewards"

    def end(self, reason: str, messages: Conversation) -> str:
        return "max_turns_exceeded" if reason == "finished" else reason

    async def score(self, request: Request, reason: str, messages: Conversation) -> RewardMap:
        return {}


class SameReward(Sound):
    finds = "constant-reward"

    async def score(self, request: Request, reason: str, messages: Conversation) -> RewardMap:
        return {"correct": 1.0}
