"""Judges that answer from a server on the loopback interface."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from benchmax.auth import StaticBearerAuth
from benchmax.envs import Example, RolloutRequest
from benchmax.rewards import Judge
from tests.contract.loopback import ModelServer, Received, Reply, completion, error

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


FENCE = "```"

ANSWERS: dict[str, Reply] = {
    "plain": answer({"score": 1}),
    "whole float": answer({"score": 1.0, "reasoning": ""}),
    "fenced": answer(f'{FENCE}json\n{{"score": 1}}\n{FENCE}'),
    "thinking": answer('<think>perhaps {"score": 0}\n</think>\n{"score": 1}'),
    "prose around": answer('My verdict is {"score": 1, "reasoning": "x"}, and I stand by it.'),
}
"""Answers of a judge that can be read, all with the score 1."""

OUTAGES: dict[str, tuple[Reply, str]] = {
    "prose": (answer("I would give it a one."), "valid JSON object"),
    "a list": (answer("[1]"), "valid JSON object"),
    "broken JSON": (answer('{"score": 1'), "valid JSON object"),
    "no score": (answer({"reasoning": "x"}), "no 'score'"),
    "a text as score": (answer({"score": "1"}), "finite number"),
    "a bool as score": (answer({"score": True}), "finite number"),
    "nan as score": (answer('{"score": NaN}'), "finite number"),
    "another score": (answer({"score": 0.5}), "not one of"),
    "a list as reasoning": (answer({"score": 1, "reasoning": []}), "'reasoning' must be a string"),
    "an empty answer": (completion(""), "empty response"),
    "no content": (completion(None), "empty response"),
    "no choices": (Reply({"choices": []}), "empty response"),
    "an empty body": (Reply(b""), "request failed"),
    "a cut body": (Reply(b'{"choices": ['), "request failed"),
    "a page": (Reply(b"<html>hello</html>", content_type="text/html"), "empty response"),
    "status 400": (error(400, "other"), "Error code: 400"),
    "status 401": (error(401, None), "authentication failed"),
    "status 403": (error(403, None), "authentication failed"),
    "status 429": (error(429, "rate_limit_exceeded"), "Error code: 429"),
    "status 500": (error(500, None), "Error code: 500"),
    "a lost connection": (Reply(dropped=True), "Connection error"),
    "no answer": (Reply(held=True), "timed out"),
}
"""What a judge's server may do instead, and what is said of it."""


def judge_beside_a_model(received: Received) -> Reply:
    """Answer as the model with the name that the key is of, and as the judge with what that name stands for."""
    _, _, name = received.headers["authorization"].partition("key of ")
    if name:
        return completion(name)
    prompt = prompt_of(received)
    if (last := re.search("every index from 0 to ([0-9]+) exactly once", prompt)) is not None:
        return answer({"ranking": [list(range(int(last[1]) + 1))]})
    found = re.search("<response>\n(.*)\n</response>", prompt)
    assert found is not None
    return ANSWERS[found[1]] if found[1] in ANSWERS else OUTAGES[found[1]][0]


def requests_by_name(example: Example[Any], base_url: str, names: Sequence[str]) -> list[RolloutRequest[Any]]:
    """Make the requests of a group whose rollouts answer with their names."""
    return [RolloutRequest(name, example, "m", base_url, StaticBearerAuth(f"key of {name}"), "eval") for name in names]
