"""An environment that nothing is wrong with, in parts that those with a defect replace."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from benchmax.auth import ModelAuth, ModelRequestContext
from benchmax.envs import Dataset, Environment, Example, RewardMap, RolloutAttempt, RolloutFailure, RolloutRequest

NUMBER = {"type": "number"}
MULTIPLY = {
    "type": "function",
    "function": {
        "name": "multiply",
        "description": "multiply two numbers",
        "parameters": {
            "type": "object",
            "properties": {"left": NUMBER, "right": NUMBER},
            "required": ["left", "right"],
        },
    },
}


class ModelFailedError(Exception):
    """An answer with an error status."""

    def __init__(self, status: int, code: str | None) -> None:
        super().__init__(f"status {status}, code {code}")
        self.status = status
        self.code = code


async def post(url: str, headers: Mapping[str, str], body: Mapping[str, Any]) -> dict[str, Any]:
    """Ask for a completion, with nothing beyond the standard library: a client library takes longer to load."""

    def send() -> Any:
        sent = {"content-type": "application/json", **headers}
        request = Request(f"{url}/chat/completions", json.dumps(body).encode(), sent)
        try:
            with urlopen(request) as answer:
                return json.load(answer)
        except HTTPError as error:
            with error:
                said = json.load(error)["error"]
            raise ModelFailedError(error.code, said["code"]) from None

    answer: dict[str, Any] = await asyncio.to_thread(send)
    return answer


async def ask(auth: ModelAuth, url: str, model: str, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """Ask with the headers of a source; return the message."""
    headers = await auth.headers_for_request(ModelRequestContext(url, model, name))
    message: dict[str, Any] = (await post(url, headers, {"model": model, **body}))["choices"][0]["message"]
    return message


class Sound(Environment[dict[str, Any], RolloutAttempt]):
    """Products of two numbers, worked out with a tool: two turns, of which the mock gets one in four wrong."""

    finds: str | None = None
    max_turns = 6

    def rows(self) -> list[dict[str, Any]]:
        return [{"question": f"What is {n} * 7?", "answer": n * 7} for n in range(3, 9)]

    def example(self, row: dict[str, Any]) -> Example[dict[str, Any]]:
        return Example(f"times-{row['answer']}", row)

    async def create_dataset(
        self, split: Any, base_dir: Path, *, max_examples: int | None = None
    ) -> Dataset[dict[str, Any]]:
        return Dataset([self.example(row) for row in self.rows()[:max_examples]])

    def tools(self, turn: int) -> list[dict[str, Any]]:
        return [MULTIPLY]

    def controls(self) -> dict[str, Any]:
        return {}

    def prompt(self, row: dict[str, Any]) -> str:
        return str(row["question"])

    async def run_rollout(self, request: RolloutRequest[dict[str, Any]]) -> RolloutAttempt:
        messages: list[dict[str, Any]] = [{"role": "user", "content": self.prompt(request.example.payload)}]
        reason = "max_turns_exceeded"
        for turn in range(self.max_turns):
            try:
                message = await self.turn(request, turn, messages)
            except ModelFailedError as error:
                reason = await self.failed(error, messages)
                break
            messages.append({key: message[key] for key in ("role", "content", "tool_calls") if message.get(key)})
            if not message.get("tool_calls"):
                reason = "finished"
                break
            for call in message["tool_calls"]:
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": self.run_tool(call)})
        reason, rewards = self.end(reason, messages), await self.score(request, reason, messages)
        return RolloutAttempt(rollout_id=request.rollout_id, termination_reason=reason, rewards=rewards)

    async def turn(
        self, request: RolloutRequest[dict[str, Any]], turn: int, messages: list[dict[str, Any]]
    ) -> dict[str, Any]:
        tools = self.tools(turn)
        body = {"messages": messages, **({"tools": tools} if tools else {}), **self.controls()}
        return await ask(request.model_auth, request.base_url, request.model, request.rollout_id, body)

    async def failed(self, error: ModelFailedError, messages: list[dict[str, Any]]) -> str:
        if error.code == "context_budget_exceeded":
            return "context_exceeded"
        raise RolloutFailure("model_error", str(error)) from error

    def run_tool(self, call: dict[str, Any]) -> str:
        try:
            arguments = json.loads(call["function"]["arguments"])
            return str(arguments["left"] * arguments["right"])
        except (ValueError, KeyError, TypeError) as error:
            return f"error: {type(error).__name__}"

    def end(self, reason: str, messages: list[dict[str, Any]]) -> str:
        return reason

    async def score(
        self, request: RolloutRequest[dict[str, Any]], reason: str, messages: list[dict[str, Any]]
    ) -> RewardMap:
        numbers = re.findall(r"-?\d+", str(messages[-1].get("content")))
        return {"correct": float(bool(numbers) and int(numbers[-1]) == request.example.payload["answer"])}
