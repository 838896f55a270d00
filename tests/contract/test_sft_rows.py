"""One row: its keys, tools, metadata and sizes, and that it has something to learn from."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmax.sft import SftDataset
from benchmax.sft.rows import (
    MAX_MESSAGES,
    MAX_METADATA_BYTES,
    MAX_ROW_BYTES,
    MAX_TOOLS,
    RESERVED_METADATA_PREFIX,
)
from benchmax.sft.strict_json import MAX_JSON_DEPTH
from tests.contract.sft_lab import ASK, SAY, Row, call, calling, expect, nested, problems, result, row, tool

NO_TRAINING = ("$.messages", "at least one assistant message with weight 1")


def test_the_limits_are_these() -> None:
    assert (MAX_MESSAGES, MAX_TOOLS, MAX_ROW_BYTES, MAX_METADATA_BYTES) == (1024, 128, 1024 * 1024, 64 * 1024)
    assert (MAX_JSON_DEPTH, RESERVED_METADATA_PREFIX) == (64, "_castform_")


def test_a_row_of_one_assistant_message_is_valid() -> None:
    assert problems({"messages": [SAY]}) == []


def test_unknown_top_level_keys_are_listed_in_order_as_one_issue() -> None:
    expect(row(b=1, a=2, B=3), ("$", "unknown top-level key(s): B, a, b"))


def test_the_parts_are_checked_in_a_fixed_order_whatever_the_order_of_keys() -> None:
    value = {
        "metadata": None,
        "messages": [{"role": "user", "content": ""}, {"role": "assistant", "tool_calls": [7], "weight": 0}],
        "tools": [],
        "extra": 1,
    }
    expect(
        value,
        ("$", "unknown top-level key"),
        ("$.messages[0].content", "must not be empty"),
        ("$.messages[1].tool_calls[0]", "JSON object"),
        ("$.tools", "non-empty list when any message makes a tool call"),
        ("$.metadata", "JSON object"),
        NO_TRAINING,
    )


# --- messages as a whole


def test_messages_are_required() -> None:
    expect({}, ("$", "messages is required"))


@pytest.mark.parametrize("messages", [None, {}, "x", 7])
def test_messages_have_to_be_a_list(messages: Any) -> None:
    expect({"messages": messages}, ("$.messages", "must be a list"))


def test_messages_must_not_be_empty() -> None:
    expect({"messages": []}, ("$.messages", "messages must not be empty"))


def test_more_messages_than_the_maximum_are_counted_and_still_checked() -> None:
    assert problems(row(*[SAY] * 1024)) == []
    expect(row(*[SAY] * 1024, 7), ("$.messages", "1025"), ("$.messages[1024]", "JSON object"))
    assert "maximum is 1024" in problems(row(*[SAY] * 1025))[0][1]


# --- tools


@pytest.mark.parametrize("tools", [None, {}, "x"])
def test_tools_have_to_be_a_list(tools: Any) -> None:
    expect(row(tools=tools), ("$.tools", "must be a list"))


def test_no_tools_and_unused_tools_are_valid() -> None:
    assert problems(row(tools=[])) == []
    assert problems(row(tools=[tool("f"), tool("g", description="")])) == []


def test_more_tools_than_the_maximum_are_counted_and_still_checked() -> None:
    assert problems(row(tools=[tool(f"f{number}") for number in range(128)])) == []
    expect(
        row(tools=[*(tool(f"f{number}") for number in range(128)), 7]),
        ("$.tools", "129"),
        ("$.tools[128]", "JSON object"),
    )
    assert "maximum is 128" in problems(row(tools=[tool(f"f{number}") for number in range(129)]))[0][1]


AT = "$.tools[0]"


def with_function(**changes: Any) -> Row:
    """Return a row whose one tool has a function with fields changed; `...` removes one."""
    function = {"name": "f", "parameters": {}, **changes}
    kept = {key: value for key, value in function.items() if value is not ...}
    return row(tools=[{"type": "function", "function": kept}])


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ([], [(AT, "JSON object")]),
        (None, [(AT, "JSON object")]),
        (tool() | {"b": 1, "a": 2}, [(AT, "unknown key(s): a, b")]),
        (tool() | {"type": "tool"}, [(f"{AT}.type", 'literal "function"')]),
        (tool() | {"type": ["function"]}, [(f"{AT}.type", 'literal "function"')]),
        ({"function": tool()["function"]}, [(f"{AT}.type", 'literal "function"')]),
        ({"type": "function"}, [(AT, "requires a function object")]),
        ({"type": "function", "function": None}, [(f"{AT}.function", "JSON object")]),
        (
            {"x": 1},
            [(AT, "unknown key(s): x"), (f"{AT}.type", 'literal "function"'), (AT, "requires a function object")],
        ),
    ],
)
def test_a_tool_is_an_object_of_type_and_function(entry: Any, expected: list[tuple[str, str]]) -> None:
    expect(row(tools=[entry]), *expected)


@pytest.mark.parametrize(
    ("changes", "location", "key_terms"),
    [
        ({"strict": True, "a": 1}, "", "unknown key(s): a, strict"),
        ({"name": ...}, ".name", "non-empty string"),
        ({"name": ""}, ".name", "non-empty string"),
        ({"name": 7}, ".name", "non-empty string"),
        ({"parameters": ...}, "", "parameters is required"),
        ({"parameters": None}, ".parameters", "JSON object"),
        ({"parameters": []}, ".parameters", "JSON object"),
        ({"parameters": {"type": "array"}}, ".parameters.type", '"object"'),
        ({"parameters": {"type": None}}, ".parameters.type", '"object"'),
        ({"parameters": {"type": ["object"]}}, ".parameters.type", '"object"'),
        ({"description": None}, ".description", "string"),
        ({"description": 7}, ".description", "string"),
    ],
)
def test_a_tools_function_has_a_name_parameters_and_perhaps_a_description(
    changes: Row, location: str, key_terms: str
) -> None:
    expect(with_function(**changes), (f"{AT}.function{location}", key_terms))


def test_parameters_are_any_object_without_a_type_or_of_type_object() -> None:
    assert problems(with_function(parameters={})) == []
    assert problems(with_function(parameters={"type": "object", "anything": [None]}, description="")) == []


def test_the_issues_of_a_function_come_in_a_fixed_order() -> None:
    expect(
        with_function(description=1, parameters={"type": 1}, name=1, x=1),
        (f"{AT}.function", "unknown key(s): x"),
        (f"{AT}.function.name", "non-empty string"),
        (f"{AT}.function.parameters.type", '"object"'),
        (f"{AT}.function.description", "string"),
    )


def test_a_name_is_defined_once() -> None:
    expect(
        row(tools=[tool("it's"), tool("g"), tool("it's", x=1)]),
        ("$.tools[2].function", "unknown key(s): x"),
        ("$.tools[2].function.name", 'duplicate tool definition "it\'s"'),
    )


# --- tools that calls need


@pytest.mark.parametrize("more", [{}, {"tools": []}])
def test_tool_calls_need_tools(more: Row) -> None:
    value = row(ASK, calling(), result(), SAY, **more)
    expect(value, ("$.tools", "non-empty list when any message makes a tool call"))


def test_tools_that_are_no_list_are_two_issues_beside_a_tool_call() -> None:
    expect(
        row(calling(), result(), tools=None),
        ("$.tools", "must be a list"),
        ("$.tools", "non-empty list when any message makes a tool call"),
    )


@pytest.mark.parametrize("calls", [[], None, "x", {}])
def test_what_is_no_list_of_calls_needs_no_tools(calls: Any) -> None:
    expect(row({**SAY, "tool_calls": calls}), ("$.messages[0].tool_calls", "non-empty list when present"))


# --- metadata


@pytest.mark.parametrize("metadata", [None, [], "x", 7])
def test_metadata_have_to_be_an_object(metadata: Any) -> None:
    expect(row(metadata=metadata), ("$.metadata", "JSON object"))


def test_reserved_metadata_keys_are_named_in_the_order_of_the_object() -> None:
    metadata = {"_castform_b": 1, "tools": 2, "_castform_": 3, "castform": 4, "Tools": 5, "_castform": 6}
    expect(
        row(metadata=metadata),
        ("$.metadata", "'_castform_b' is reserved"),
        ("$.metadata", 'metadata key "tools" is reserved'),
        ("$.metadata", "'_castform_' is reserved"),
    )
    assert "'_castform_'" in problems(row(metadata={"_castform_x": 1}))[0][1]


def test_reserved_keys_are_free_further_down() -> None:
    assert problems(row(metadata={"a": {"tools": 1, "_castform_x": 2}})) == []


def metadata_of(size: int) -> Row:
    """Return metadata of a size in canonical form, half of it two-byte characters."""
    half = (size - len('{"x":""}')) // 2
    value = {"x": "é" * (half // 2) + "a" * (size - len('{"x":""}') - 2 * (half // 2))}
    assert len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()) == size
    return value


def test_metadata_have_a_largest_canonical_size() -> None:
    assert problems(row(metadata=metadata_of(65_536))) == []
    expect(row(metadata=metadata_of(65_537)), ("$.metadata", "metadata canonical size"))
    message = problems(row(metadata=metadata_of(65_537)))[0][1]
    assert "65537" in message
    assert "65536" in message


def test_the_size_of_metadata_comes_after_their_keys_and_is_not_measured_where_there_is_no_canonical_form() -> None:
    metadata = metadata_of(65_537)
    expect(
        row(metadata={**metadata, "tools": 1}), ("$.metadata", "reserved"), ("$.metadata", "metadata canonical size")
    )
    expect(row(metadata={**metadata, "y": "\ud800"}), ("$.metadata.y", "lone surrogate"))
    expect(row(metadata={**metadata, 1: 2, "y": 3}), ("$.metadata", "must be a string"))
    # neither the deepest nesting that is allowed nor an issue elsewhere in the row hides it
    expect(row(metadata={**metadata, "deep": nested(62)}), ("$.metadata", "metadata canonical size"))
    expect(
        row({**SAY, "x": "\ud800"}, metadata=metadata),
        ("$.messages[0].x", "lone surrogate"),
        ("$.messages[0]", "unknown key(s): x"),
        ("$.metadata", "metadata canonical size"),
    )


# --- something to learn from


@pytest.mark.parametrize(
    "messages",
    [
        [ASK],
        [ASK, {**SAY, "weight": 0}],
        [{"role": "system", "content": "s"}],
        [{**SAY, "weight": 0}, {**SAY, "weight": 0}],
    ],
)
def test_some_assistant_message_has_to_be_trainable(messages: list[Row]) -> None:
    expect(row(*messages), NO_TRAINING)


@pytest.mark.parametrize(
    "messages",
    [
        [SAY],
        [{**SAY, "weight": 1}],
        [{**SAY, "weight": 0}, ASK, SAY],
        [calling(), result()],
        [{**calling(), "content": None, "weight": 1}, result()],
        [SAY, ASK],
    ],
)
def test_one_trainable_assistant_message_is_enough(messages: list[Row]) -> None:
    assert problems(row(*messages, tools=[tool()])) == []


@pytest.mark.parametrize("weight", [2, -1, True, False, 1.0, 0.0, None, "1", [1]])
def test_a_weight_that_is_not_valid_makes_its_turn_untrainable(weight: Any) -> None:
    expect(row({**SAY, "weight": weight}), ("$.messages[0].weight", "weight must be the integer 0 or 1"), NO_TRAINING)
    expect(row({**SAY, "weight": weight}, SAY), ("$.messages[0].weight", "weight must be the integer 0 or 1"))


@pytest.mark.parametrize("empty", [{"role": "assistant"}, {"role": "assistant", "content": ""}])
def test_an_empty_assistant_message_is_not_trainable(empty: Row) -> None:
    expect(row(empty), ("$.messages[0]", "non-empty content or at least one tool call"), NO_TRAINING)


def test_what_is_no_message_is_not_trainable() -> None:
    expect(row(7), ("$.messages[0]", "JSON object"), NO_TRAINING)


def test_a_call_that_is_not_valid_makes_its_turn_trainable_nevertheless() -> None:
    expect(
        row({"role": "assistant", "tool_calls": [7]}, tools=[tool()]),
        ("$.messages[0].tool_calls[0]", "JSON object"),
    )


# --- size


def row_of(size: int) -> Row:
    frame = len('{"messages":[{"content":"","role":"assistant"}]}')
    return row({"role": "assistant", "content": "a" * (size - frame)})


def test_a_row_has_a_largest_canonical_size() -> None:
    dataset = SftDataset.from_rows([row_of(1_048_576)])
    assert len(dataset.to_jsonl_bytes()) == 1_048_577
    expect(row_of(1_048_577), ("$", "row canonical size"))
    message = problems(row_of(1_048_577))[0][1]
    assert "1048577" in message
    assert "1048576" in message


def test_the_size_of_a_row_is_measured_only_if_nothing_else_is_wrong() -> None:
    expect({**row_of(1_048_577), "x": 1}, ("$", "unknown top-level key"))


def test_the_size_is_that_of_the_canonical_form_and_not_of_what_was_given() -> None:
    assert problems(json.loads(json.dumps(row_of(1_000_000), indent=200_000))) == []
    # every character is two bytes
    assert problems(row({"role": "assistant", "content": "é" * 524_000})) == []
    expect(row({"role": "assistant", "content": "é" * 525_000}), ("$", "row canonical size"))


def test_a_row_of_many_calls_answered_in_reverse_is_checked_in_linear_time() -> None:
    count = 20_000
    calls = [call(f"c{number}") for number in range(count)]
    results = [result(f"c{number}") for number in reversed(range(count))]
    found = problems(row(calling(*calls), *results, tools=[tool()]))
    # all but the last one came before their turn; and so many messages are too many
    assert len(found) == count
