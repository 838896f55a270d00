"""The model server that the recorded environments were run against."""

from __future__ import annotations

from tests.contract.loopback import Received, Reply, call, completion, error


def scripted(received: Received) -> Reply:
    """Answer by the first word of the first message, as the recorded outcomes presuppose."""
    messages = received.body["messages"]
    turn = sum(message["role"] == "assistant" for message in messages)
    first_word = messages[0]["content"].partition(":")[0]
    once = call("multiply", '{"a": 1, "b": 1}')
    if first_word == "tool" and turn == 0:
        arguments = [("multiply", '{"a": 6, "b": 7}'), ("divide", "{}"), ("multiply", "{not json")]
        return completion(None, calls=[call(*pair, f"c{number}") for number, pair in enumerate(arguments)])
    return {
        "plain": completion("42"),
        "tool": completion("42"),
        "length": completion("4", finish="length"),
        "context": error(400, "context_budget_exceeded"),
        "bad": error(400, "other"),
        "loop": completion(None, calls=[once]),
        "budget": completion(None, calls=[once] * 4),
        "crash": completion(None, calls=[call("multiply", '{"a": "x"}')]),
    }[first_word]
