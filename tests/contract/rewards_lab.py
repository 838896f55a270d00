"""Judges that answer from a server on the loopback interface."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from benchmax.auth import StaticBearerAuth
from benchmax.rewards import Judge
from tests.contract.loopback import ModelServer, Received, Reply, completion

ResultT = TypeVar("ResultT")


def judge_at(server: ModelServer, **options: Any) -> Judge:
    return Judge("m", server.url, StaticBearerAuth("t"), **options)


def prompt_of(received: Received) -> str:
    (message,) = received.body["messages"]
    assert message["role"] == "user"
    return str(message["content"])


def prompts_of(server: ModelServer) -> list[str]:
    return [prompt_of(received) for received in server.requests]


def answer(value: Any) -> Reply:
    return completion(value if isinstance(value, str) else json.dumps(value))


def script_answers(server: ModelServer, *values: Any) -> None:
    server.script(*map(answer, values))


def answer_by_prompt(server: ModelServer, decide: Callable[[str], Any]) -> None:
    server.answer = lambda received: answer(decide(prompt_of(received)))


def result_of(coroutine: Coroutine[Any, Any, ResultT]) -> ResultT:
    """Run a coroutine that never waits, without an event loop."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: ResultT = stop.value
        return result
    raise AssertionError("the coroutine waits for something")
