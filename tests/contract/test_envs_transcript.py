"""A runtime that watches a rollout sees its messages while they come; without one nothing happens."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmax.envs import BaseEnv, BaseRollout, Dataset, Example, RolloutRequest, StaticBearerAuth
from benchmax.envs.transcript import _TRANSCRIPT_OBSERVER, show_transcript
from tests.contract.loopback import ModelServer, call, completion, running_server

TOOL: Any = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


class Looking(BaseEnv):
    """Its tool counts the messages that the runtime sees at that moment."""

    max_turns = 3

    def __init__(self, seen: list[Any]) -> None:
        super().__init__()
        self.seen = seen
        self.counts: list[int] = []

    async def create_dataset(self, split: Any, base_dir: Path, *, max_examples: int | None = None) -> Dataset[Any]:
        return Dataset([])

    async def list_tools(self) -> list[Any]:
        return [TOOL]

    async def run_tool(self, rollout_id: str, tool_name: str, **tool_args: Any) -> Any:
        self.counts.append(len(self.seen[0]))
        return "looked"

    async def compute_reward(self, rollout: BaseRollout) -> Mapping[str, float]:
        return {"x": 1.0}


@pytest.fixture
def server() -> Any:
    with running_server() as server:
        yield server


async def test_the_live_messages_of_a_rollout_are_shown_before_its_first_turn(server: ModelServer) -> None:
    server.script(
        completion(None, finish="tool_calls", calls=[call("look", "{}")]),
        completion(None, finish="tool_calls", calls=[call("look", "{}", "c2")]),
        completion("done"),
    )
    seen: list[Any] = []
    token = _TRANSCRIPT_OBSERVER.set(seen.append)
    try:
        env = Looking(seen)
        example = Example("e", {"prompt_messages": [{"role": "user", "content": "q"}]})
        rollout = await env.run_rollout(RolloutRequest("r", example, "m", server.url, StaticBearerAuth("t")))
    finally:
        _TRANSCRIPT_OBSERVER.reset(token)
    (messages,) = seen
    # prompt and first answer, then those, the tool's result and the second answer
    assert env.counts == [2, 4]
    assert messages is rollout.messages
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant", "tool", "assistant"]


def test_nobody_has_to_watch() -> None:
    show_transcript([{"role": "user", "content": "q"}])
