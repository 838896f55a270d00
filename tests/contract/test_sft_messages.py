"""The messages of a row: what each role may carry, and what a tool call consists of."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.contract.sft_lab import ASK, SAY, Row, call, calling, expect, nested, problems, result, row, tool

AT = "$.messages[0]"


def beside(*messages: Any) -> Row:
    """Return a row of messages that also has a trainable one, last, and a tool."""
    return row(*messages, SAY, tools=[tool()])


# --- roles


@pytest.mark.parametrize("message", [None, "x", [], 7])
def test_a_message_has_to_be_an_object(message: Any) -> None:
    expect(beside(message), (AT, "JSON object"))


def test_a_role_is_required() -> None:
    expect(beside({"content": 7, "x": 1}), (AT, "role is required"))


@pytest.mark.parametrize("role", ["developer", "User", "", None, 7, ["user"], {}, True])
def test_a_role_is_one_of_four_and_nothing_else_is_said_of_another(role: Any) -> None:
    roles = 'role must be one of "assistant", "system", "tool", "user"'
    expect(beside({"role": role, "x": 1}), (f"{AT}.role", roles))


@pytest.mark.parametrize("messages", [[SAY, SAY], [SAY, {"role": "system", "content": "s"}, ASK, ASK, SAY]])
def test_any_order_of_roles_is_valid(messages: list[Row]) -> None:
    assert problems(row(*messages)) == []


# --- system, user, tool


@pytest.mark.parametrize("role", ["system", "user"])
def test_a_system_or_user_message_has_a_role_and_a_content_that_is_not_empty(role: str) -> None:
    assert problems(beside({"role": role, "content": " "})) == []
    for content in (None, 7, [{"type": "text", "text": "x"}]):
        expect(beside({"role": role, "content": content}), (f"{AT}.content", "must be a string"))
    expect(beside({"role": role}), (f"{AT}.content", "must be a string"))
    expect(beside({"role": role, "content": ""}), (f"{AT}.content", "must not be empty"))


@pytest.mark.parametrize("role", ["system", "user", "tool"])
def test_unknown_keys_are_listed_and_a_weight_among_them_is_explained(role: str) -> None:
    message = {**(result() if role == "tool" else ASK), "role": role}
    before = [calling()] if role == "tool" else []
    at = f"$.messages[{len(before)}]"
    expect(beside(*before, {**message, "name": "n", "b": 1}), (at, "unknown key(s): b, name"))
    found = problems(beside(*before, {**message, "weight": 1, "name": "n"}))
    assert [location for location, _ in found] == [at]
    assert "unknown key(s): name, weight" in found[0][1]
    assert "weight is only supported on assistant messages" in found[0][1]
    assert "only supported" not in problems(beside(*before, {**message, "name": "n"}))[0][1]


def test_unknown_keys_come_before_the_content() -> None:
    expect(
        beside({"role": "user", "content": "", "x": 1}),
        (AT, "unknown key(s): x"),
        (f"{AT}.content", "must not be empty"),
    )


def test_a_tool_message_may_have_an_empty_content_but_has_to_have_one() -> None:
    assert problems(beside(calling(), {"role": "tool", "tool_call_id": "c1", "content": ""})) == []
    expect(beside(calling(), {"role": "tool", "tool_call_id": "c1"}), ("$.messages[1].content", "must be a string"))
    expect(
        beside(calling(), {"role": "tool", "tool_call_id": "c1", "content": None}),
        ("$.messages[1].content", "must be a string"),
    )


@pytest.mark.parametrize("call_id", [None, "", 7, ["c1"]])
def test_the_id_of_a_tool_message_has_to_be_a_string_that_is_not_empty(call_id: Any) -> None:
    expect(
        beside(calling(), {"role": "tool", "tool_call_id": call_id, "content": "r"}),
        ("$.messages[1].tool_call_id", "non-empty string"),
        ("$.messages[0].tool_calls", "have no tool result"),
    )
    expect(beside({"role": "tool", "content": "r"}), (f"{AT}.tool_call_id", "non-empty string"))


# --- assistant


def test_an_assistant_message_says_something_or_calls_tools_or_both() -> None:
    for message in (SAY, calling(), calling(content=None), calling(content=""), calling(content="x", weight=0)):
        assert problems(beside(message, *([result()] if "tool_calls" in message else []))) == []


@pytest.mark.parametrize("content", [7, [], {}, True])
def test_a_content_of_another_type_counts_as_none(content: Any) -> None:
    expect(
        beside({"role": "assistant", "content": content}),
        (f"{AT}.content", "string or null"),
        (AT, "non-empty content or at least one tool call"),
    )
    expect(beside(calling(content=content), result()), (f"{AT}.content", "string or null"))


@pytest.mark.parametrize("message", [{}, {"content": None}, {"content": ""}, {"weight": 0}, {"weight": 1}])
def test_an_assistant_message_of_nothing_is_refused(message: Row) -> None:
    expect(beside({"role": "assistant", **message}), (AT, "non-empty content or at least one tool call"))


@pytest.mark.parametrize("weight", [0, 1])
def test_a_weight_is_the_integer_zero_or_one(weight: int) -> None:
    assert problems(beside({**SAY, "weight": weight})) == []


@pytest.mark.parametrize("calls", [None, [], {}, "x", 7])
def test_tool_calls_have_to_be_a_list_that_is_not_empty(calls: Any) -> None:
    at = f"{AT}.tool_calls"
    expect(beside({**SAY, "tool_calls": calls}), (at, "non-empty list when present"))
    expect(
        beside({"role": "assistant", "tool_calls": calls}),
        (at, "non-empty list when present"),
        (AT, "non-empty content or at least one tool call"),
    )


def test_the_issues_of_an_assistant_message_come_in_a_fixed_order() -> None:
    expect(
        beside({"tool_calls": [], "weight": 7, "content": 7, "role": "assistant", "name": 7}),
        (AT, "unknown key(s): name"),
        (f"{AT}.content", "string or null"),
        (f"{AT}.weight", "weight must be the integer 0 or 1"),
        (f"{AT}.tool_calls", "non-empty list when present"),
        (AT, "non-empty content or at least one tool call"),
    )
    expect(
        beside({"tool_calls": [7], "weight": 7, "content": 7, "role": "assistant", "name": 7}),
        (AT, "unknown key(s): name"),
        (f"{AT}.content", "string or null"),
        (f"{AT}.weight", "weight must be the integer 0 or 1"),
        (f"{AT}.tool_calls[0]", "JSON object"),
    )


# --- tool calls

CALL = f"{AT}.tool_calls[0]"


def with_call(**changes: Any) -> Row:
    """Return a row with one tool call whose fields are changed, `...` removing one; its id, if any, is answered."""
    value = {key: field for key, field in {**call(), **changes}.items() if field is not ...}
    answered = [result(value["id"])] if type(value.get("id")) is str and value["id"] else []
    return beside(calling(value), *answered)


def with_called_function(**changes: Any) -> Row:
    function = {**call()["function"], **changes}
    return with_call(function={key: field for key, field in function.items() if field is not ...})


@pytest.mark.parametrize(
    ("changes", "location", "key_terms"),
    [
        ({"index": 0, "a": 1}, "", "unknown key(s): a, index"),
        ({"type": ...}, ".type", 'literal "function"'),
        ({"type": "tool"}, ".type", 'literal "function"'),
        ({"type": ["function"]}, ".type", 'literal "function"'),
        ({"id": ...}, ".id", "non-empty string"),
        ({"id": ""}, ".id", "non-empty string"),
        ({"id": 7}, ".id", "non-empty string"),
        ({"function": ...}, "", "requires a function object"),
        ({"function": None}, ".function", "JSON object"),
        ({"function": "f"}, ".function", "JSON object"),
    ],
)
def test_a_tool_call_is_an_object_of_id_type_and_function(changes: Row, location: str, key_terms: str) -> None:
    expect(with_call(**changes), (f"{CALL}{location}", key_terms))


@pytest.mark.parametrize("value", [None, [], "x", 7])
def test_a_tool_call_that_is_no_object_is_one_issue(value: Any) -> None:
    expect(beside(calling(value)), (CALL, "JSON object"))


@pytest.mark.parametrize(
    ("changes", "location", "key_terms"),
    [
        ({"x": 1, "description": "d"}, "", "unknown key(s): description, x"),
        ({"name": ...}, ".name", "non-empty string"),
        ({"name": ""}, ".name", "non-empty string"),
        ({"name": 7}, ".name", "non-empty string"),
        ({"name": "it's"}, ".name", 'undefined function "it\'s"'),
        ({"arguments": ...}, ".arguments", "JSON-encoded string"),
        ({"arguments": {}}, ".arguments", "JSON-encoded string"),
        ({"arguments": None}, ".arguments", "JSON-encoded string"),
        ({"arguments": ""}, ".arguments", "arguments must decode as JSON:"),
        ({"arguments": "{"}, ".arguments", "arguments must decode as JSON:"),
        ({"arguments": "\ufeff{}"}, ".arguments", "arguments must decode as JSON:"),
        ({"arguments": '{"a": 1, "a": 2}'}, ".arguments", "arguments must decode as JSON: duplicate object key 'a'"),
        ({"arguments": '{"a": NaN}'}, ".arguments", "arguments must decode as JSON: non-finite number literal 'NaN'"),
        ({"arguments": "[" * 200_000}, ".arguments", "arguments must decode as JSON: nesting exceeds 64 levels"),
        ({"arguments": "1" * 5000}, ".arguments", "arguments must decode as JSON:"),
        ({"arguments": "[]"}, ".arguments", "decode as a JSON object"),
        ({"arguments": "null"}, ".arguments", "decode as a JSON object"),
        ({"arguments": '"{}"'}, ".arguments", "decode as a JSON object"),
        ({"arguments": '{"a": ["\\ud800"]}'}, ".arguments.a[0]", "lone surrogate"),
        ({"arguments": '{"a": {"\\ud800": 1}}'}, ".arguments.a", "lone surrogate"),
        ({"arguments": '{"a": 1e999}'}, ".arguments.a", "must be finite"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_a_called_function_has_a_defined_name_and_arguments_that_decode_strictly(
    changes: Row, location: str, key_terms: str
) -> None:
    expect(with_called_function(**changes), (f"{CALL}.function{location}", key_terms))


@pytest.mark.parametrize("arguments", ["{}", ' {"a": [1, 2.5, null, {"b": "\\ud83d\\ude00"}]}\n', '{"": {}}'])
def test_arguments_are_the_text_of_any_object(arguments: str) -> None:
    assert problems(with_called_function(arguments=arguments)) == []


def test_the_nesting_of_arguments_counts_on_its_own() -> None:
    def arguments(levels: int) -> str:
        return f'{{"a": {nested(levels)}}}'

    assert problems(with_called_function(arguments=arguments(63))) == []
    at = f"{CALL}.function.arguments.a" + "[0]" * 63
    expect(with_called_function(arguments=arguments(64)), (at, "nesting exceeds 64 levels"))


def test_the_issues_of_a_call_come_in_a_fixed_order() -> None:
    function = {"arguments": 7, "name": "g", "x": 1}
    expect(
        beside(calling({"function": function, "id": 7, "type": 7, "x": 1})),
        (CALL, "unknown key(s): x"),
        (f"{CALL}.type", 'literal "function"'),
        (f"{CALL}.id", "non-empty string"),
        (f"{CALL}.function", "unknown key(s): x"),
        (f"{CALL}.function.name", "undefined function 'g'"),
        (f"{CALL}.function.arguments", "JSON-encoded string"),
    )


@pytest.mark.parametrize("tools", [[], None, {}])
def test_names_are_not_looked_up_without_a_list_of_tools(tools: Any) -> None:
    found = problems(row(calling(call(name="anything")), result(), tools=tools))
    assert all(location == "$.tools" for location, _ in found)
    assert found


def test_a_name_is_looked_up_among_the_tools_that_have_one() -> None:
    broken = {"type": "function", "function": {"name": "g"}}
    expect(
        row(calling(call(name="g"), call("c2", name="h")), result(), result("c2"), tools=[broken, 7]),
        ("$.tools[0].function", "parameters is required"),
        ("$.tools[1]", "JSON object"),
        ("$.messages[0].tool_calls[1].function.name", "undefined function 'h'"),
    )


def test_an_id_is_used_once_in_a_row() -> None:
    value = beside(calling(call("it's"), call("it's")), result("it's"), calling(call("it's")))
    expect(
        value,
        ("$.messages[0].tool_calls[1].id", 'duplicate tool call id "it\'s"'),
        ("$.messages[2].tool_calls[0].id", 'duplicate tool call id "it\'s"'),
    )


def test_a_value_that_is_wrong_in_two_ways_has_both_issues_the_trees_first() -> None:
    expect(
        beside({"role": "user", "content": math.nan}),
        (f"{AT}.content", "must be finite"),
        (f"{AT}.content", "must be a string"),
    )
