"""Diagnostics over any JSON: they never fail, stay bounded, find every change, and nothing where spelling differs."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from runner.gateway.assembler import AnswerAssembler, answer_message
from runner.gateway.controls import CONTROLS
from runner.gateway.diagnostics import SessionContract
from runner.gateway.findings import MAX_PLACES, Finding

Message = dict[str, Any]

leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just("\ud800")
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
)
"""Whatever `json.loads` can give, lone surrogates and numbers that are none included."""

fields = st.sampled_from(["messages", "tools", *CONTROLS])
oddities = st.fixed_dictionaries(
    {},
    optional={
        "role": values,
        "content": values,
        "tool_calls": values
        | st.lists(st.fixed_dictionaries({}, optional={"id": values, "function": values}), max_size=3),
        "name": values,
    },
)
bodies = values | st.dictionaries(fields, values | st.lists(values | oddities, max_size=5), max_size=6)

texts = st.text(max_size=12)
arguments = st.dictionaries(texts, st.integers() | texts, max_size=3)
calls = st.builds(
    lambda name, given: {"id": "", "type": "function", "function": {"name": name, "arguments": json.dumps(given)}},
    st.sampled_from(["add", "find"]),
    arguments,
)


@st.composite
def answers(draw: st.DrawFn) -> Message:
    made = draw(st.lists(calls, max_size=3))
    for index, call in enumerate(made):
        call["id"] = f"c{index}"
    message: Message = {"role": "assistant", "content": draw(texts if not made else st.none() | texts)}
    return message | ({"tool_calls": made} if made else {})


others = st.builds(
    lambda role, content: {"role": role, "content": content}, st.sampled_from(["system", "user", "tool"]), texts
)
turns = st.lists(st.tuples(st.lists(others, min_size=1, max_size=3), answers()), min_size=1, max_size=4)


def respelled(message: Message, way: int) -> Message:
    """The same message as one client or another writes it."""
    message = copy.deepcopy(message)
    content = message.get("content")
    if way % 2 and content:
        half = len(content) // 2
        parts = [{"type": "text", "text": content[:half]}, {"type": "text", "text": content[half:]}]
        message["content"] = [parts[0], {**parts[1], "cache_control": {"type": "ephemeral"}}]
    if way % 3 == 0 and not content:
        message["content"] = "" if content is None else None
    if way % 5 == 0:
        message |= {"refusal": None, "name": None, "reasoning_content": f"way {way}"}
    return dict(reversed(message.items())) if way % 7 == 0 else message


def found_by(contract: SessionContract) -> list[Finding]:
    return list(contract.findings)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), bodies | st.none(), values | oddities), max_size=8))
def test_no_json_makes_it_fail_and_what_it_says_is_bounded(events: list[tuple[int, object, object]]) -> None:
    contract = SessionContract()
    for number, (steps, document, answer) in enumerate(events):
        contract.began(number, document)
        if steps > 1:
            contract.answered(number, answer)
        if steps != 1:
            contract.ended(number)
    found = contract.findings
    assert len(found) <= 8 * (MAX_PLACES + 1) + len(CONTROLS)
    for finding in found:
        assert len(finding.message) < 400
        assert finding.message.isprintable()
        assert len(finding.field) < 60
        assert finding.count <= len(events)
    for item in contract.errors + contract.warnings:
        assert item["code"]
        assert item["message"]
    assert len(contract.errors) + len(contract.warnings) == len(found)


@settings(deadline=None)
@given(turns, st.lists(st.integers(1, 100), min_size=40, max_size=40))
def test_a_conversation_that_grows_is_clean_however_it_is_spelled(
    conversation: list[tuple[list[Message], Message]], ways: list[int]
) -> None:
    contract = SessionContract()
    messages: list[Message] = []
    for number, (asked, answer) in enumerate(conversation):
        messages += asked
        sent = [respelled(message, way + number) for message, way in zip(messages, ways, strict=False)]
        contract.began(number, json.loads(json.dumps({"model": "m", "messages": sent})))
        contract.answered(number, json.loads(json.dumps(answer)))
        contract.ended(number)
        messages.append(answer)
    assert found_by(contract) == []


@settings(deadline=None)
@given(turns, st.data())
def test_every_change_of_what_was_said_is_found_where_it_is(
    conversation: list[tuple[list[Message], Message]], data: st.DataObject
) -> None:
    contract = SessionContract()
    messages: list[Message] = []
    for number, (asked, answer) in enumerate(conversation):
        messages += asked
        contract.began(number, {"messages": messages})
        contract.answered(number, answer)
        messages = [*messages, answer]
    assert found_by(contract) == []
    changed = copy.deepcopy(messages)
    at = data.draw(st.integers(0, len(messages) - 1))
    how = data.draw(st.sampled_from(["content", "role", "removed", "inserted", "name"]))
    match how:
        case "content":
            changed[at]["content"] = f"{changed[at]['content'] or ''}!"
        case "role":
            changed[at]["role"] = "developer"
        case "name":
            # the answer that was given last has no name of its own; any other message may have one
            changed[at]["name"] = "Ann"
        case "removed":
            del changed[at]
        case _:
            changed.insert(at, {"role": "user", "content": "never said\0"})
    contract.began(99, {"messages": changed})
    if how == "name" and at == len(messages) - 1:
        assert found_by(contract) == []
        return
    (finding,) = found_by(contract)
    assert finding.code == "rewritten_history"
    place = int(finding.field.removeprefix("messages[").split("]")[0])
    # of equal messages in a row any may be the one that is gone
    assert place == at if how != "removed" else at <= place < len(messages)


@settings(deadline=None)
@given(answers(), st.lists(st.integers(1, 5), min_size=1, max_size=20), st.booleans())
def test_a_streamed_answer_is_the_whole_one_however_it_is_cut(
    message: Message, sizes: list[int], repeated: bool
) -> None:
    assembler = AnswerAssembler()
    assert assembler.message is None
    deltas: list[Message] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": piece} for piece in cut(message["content"] or "", sizes)]
    for index, call in enumerate(message.get("tool_calls", ())):
        function = call["function"]
        head = {"index": index, "id": call["id"], "type": "function"}
        deltas.append({"tool_calls": [{**head, "function": {"name": function["name"], "arguments": ""}}]})
        for piece in cut(function["arguments"], sizes):
            more = head if repeated else {"index": index}
            deltas.append({"tool_calls": [{**more, "function": {"arguments": piece}}]})
    for delta in deltas:
        assert not assembler.finished
        assembler.feed({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
        assembler.feed({"choices": [{"index": 1, "delta": {"content": "another choice"}}]})
    assembler.feed({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    assembler.feed({"choices": [], "usage": {}})
    assert assembler.finished
    assert assembler.message == {**message, "content": message["content"] or None}


def cut(text: str, sizes: list[int]) -> list[str]:
    pieces = []
    at = number = 0
    while at < len(text):
        size = sizes[number % len(sizes)]
        pieces.append(text[at : at + size])
        at, number = at + size, number + 1
    return pieces


pieces = st.fixed_dictionaries(
    {},
    optional={"index": values, "id": values, "function": values | st.fixed_dictionaries({"name": values}), "x": values},
)
chunks = values | st.fixed_dictionaries(
    {
        "choices": values
        | st.lists(st.fixed_dictionaries({"delta": st.fixed_dictionaries({"tool_calls": st.lists(pieces)})}))
    }
)


@settings(max_examples=30, deadline=None)
@given(st.lists(chunks, max_size=6))
def test_no_json_makes_the_assembler_fail(stream: list[object]) -> None:
    assembler = AnswerAssembler()
    for chunk in stream:
        answer_message(chunk)
        assembler.feed(chunk)
        json.dumps(assembler.message)
