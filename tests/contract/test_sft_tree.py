"""What a row may consist of, whatever it means: exact types, text that UTF-8 holds, finite numbers, 64 levels."""

from __future__ import annotations

import math
from collections import OrderedDict
from enum import IntEnum
from typing import Any

import pytest

from benchmax.sft import SftDataset
from tests.contract.sft_lab import SAY, Row, call, calling, expect, nested, problems, result, row, tool


class Text(str):
    """A subclass that is equal to what it derives from."""


class Color(IntEnum):
    RED = 1


class Unspeakable:
    def __repr__(self) -> str:
        raise RuntimeError("no")


def with_metadata(value: Any) -> Row:
    return row(SAY, metadata={"x": value})


LONG = pytest.param(-(10**4000), id="a long integer")


@pytest.mark.parametrize("value", [{}, [], "", "😀\x00\x7f", 0, LONG, 1.5, -0.0, True, None, {"": [{"é": None}]}])
def test_the_types_that_a_parser_makes_pass(value: Any) -> None:
    assert problems(with_metadata(value)) == []


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (OrderedDict(), "OrderedDict"),
        ((), "tuple"),
        (Text("x"), "Text"),
        (Color.RED, "Color"),
        (b"x", "bytes"),
        ({1}, "set"),
        (Unspeakable(), "Unspeakable"),
        (1j, "complex"),
    ],
)
def test_other_types_and_subclasses_are_refused_by_name(value: Any, name: str) -> None:
    expect(with_metadata(value), ("$.metadata.x", f"unsupported type {name}"))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_have_to_be_finite(value: float) -> None:
    expect(with_metadata([1.0, value]), ("$.metadata.x[1]", "must be finite"))


def test_an_integer_that_cannot_be_written_is_refused_like_one_that_cannot_be_read() -> None:
    expect(with_metadata(10**5000), ("$.metadata.x", "Exceeds the limit"))


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb", "\ud83d\ude00"])
def test_a_string_with_a_lone_surrogate_is_refused(text: str) -> None:
    expect(with_metadata(["ok", text]), ("$.metadata.x[1]", "lone surrogate"))


@pytest.mark.parametrize(
    "key", [1, None, True, 1.5, ("a",), Text("a"), Unspeakable(), pytest.param(10**5000, id="unwritable")]
)
def test_a_key_has_to_be_a_string_and_a_bad_one_hides_its_value(key: Any) -> None:
    expect(
        with_metadata({key: math.nan, "y": math.nan}),
        ("$.metadata.x", "must be a string"),
        ("$.metadata.x.y", "must be finite"),
    )
    assert problems(with_metadata({key: 1}))[0][1].startswith("object key ")


def test_a_key_with_a_lone_surrogate_is_refused_at_its_object_and_hides_its_value() -> None:
    expect(with_metadata({"\ud800": math.nan}), ("$.metadata.x", "lone surrogate"))


def test_containers_are_at_most_sixty_four_deep_and_the_row_is_the_first() -> None:
    # the row, its metadata, and 62 lists
    assert problems(with_metadata(nested(62))) == []
    expect(with_metadata(nested(63)), ("$.metadata.x" + "[0]" * 62, "nesting exceeds 64 levels"))


def test_what_is_too_deep_is_not_looked_into_and_its_siblings_are() -> None:
    deep: Any = [{"a": math.nan}, math.nan, []]
    for _ in range(61):
        deep = [deep]
    at = "$.metadata.x" + "[0]" * 61
    expect(
        with_metadata(deep),
        (f"{at}[0]", "nesting exceeds 64 levels"),
        (f"{at}[1]", "must be finite"),
        (f"{at}[2]", "nesting exceeds 64 levels"),
    )


def test_a_value_inside_itself_is_too_deep() -> None:
    endless: Row = {}
    endless["me"] = endless
    expect(with_metadata(endless), ("$.metadata.x" + ".me" * 62, "nesting exceeds 64 levels"))


def test_a_value_inside_itself_hides_nothing_before_or_after_it() -> None:
    endless: Row = {}
    endless["me"] = endless
    also_endless: list[Any] = []
    also_endless.append(also_endless)
    expect(
        row(SAY, metadata={"a": nested(63), "b": endless, "c": {"d": math.nan}, "e": also_endless}),
        ("$.metadata.a" + "[0]" * 62, "nesting exceeds 64 levels"),
        ("$.metadata.b" + ".me" * 62, "nesting exceeds 64 levels"),
        ("$.metadata.c.d", "must be finite"),
        ("$.metadata.e" + "[0]" * 62, "nesting exceeds 64 levels"),
    )


def test_of_the_ways_in_which_a_value_is_inside_itself_one_is_followed_to_its_end() -> None:
    # followed all, three children would make 3**21 ways
    parent: Row = {"children": [], "nan": math.nan}
    parent["children"] = [{"parent": parent} for _ in range(3)]
    found = problems(with_metadata(parent))
    assert 1 <= sum("nesting exceeds" in message for _, message in found) <= 3
    assert ("$.metadata.x.nan", "number must be finite, got nan") in found


def test_a_value_in_several_places_is_not_inside_itself() -> None:
    shared: Row = {"a": [1]}
    dataset = SftDataset.from_rows([with_metadata([shared, shared, [shared]])])
    assert dataset.rows[0]["metadata"]["x"] == [shared, shared, [shared]]


def test_a_value_in_several_places_has_its_issues_in_each() -> None:
    shared = [math.nan]
    expect(
        with_metadata([shared, shared, nested(62), shared]),
        ("$.metadata.x[0][0]", "must be finite"),
        ("$.metadata.x[1][0]", "must be finite"),
        ("$.metadata.x[2]" + "[0]" * 61, "nesting exceeds 64 levels"),
        ("$.metadata.x[3][0]", "must be finite"),
    )


def test_the_whole_row_is_walked_in_document_order() -> None:
    value = {
        "metadata": {"b": math.nan, "a": [math.inf, {"c": ()}]},
        "messages": [{"role": "assistant", "content": "\ud800"}],
    }
    expect(
        value,
        ("$.metadata.b", "finite"),
        ("$.metadata.a[0]", "finite"),
        ("$.metadata.a[1].c", "unsupported type tuple"),
        ("$.messages[0].content", "lone surrogate"),
    )


def test_keys_are_appended_to_locations_as_they_are() -> None:
    expect(with_metadata({"a.b[0] \n": math.nan}), ("$.metadata.x.a.b[0] \n", "finite"))


def test_the_schema_is_checked_even_if_the_tree_has_issues() -> None:
    expect(
        {"messages": [{"role": "user", "content": math.nan}], "extra": 1},
        ("$.messages[0].content", "must be finite"),
        ("$", "unknown top-level key(s): extra"),
        ("$.messages[0].content", "must be a string"),
        ("$.messages", "at least one assistant message with weight 1"),
    )


@pytest.mark.parametrize("value", ["text", None, [], 7, 1.5, True])
def test_a_row_that_is_no_object_is_one_issue(value: Any) -> None:
    expect(value, ("$", "row must be a JSON object"))


@pytest.mark.parametrize("value", [OrderedDict(row()), (), {1}])
def test_a_row_of_an_unsupported_type_is_two_issues(value: Any) -> None:
    expect(value, ("$", f"unsupported type {type(value).__name__}"), ("$", "row must be a JSON object"))


def test_a_row_that_is_no_object_is_walked_nevertheless() -> None:
    expect([math.nan], ("$[0]", "must be finite"), ("$", "row must be a JSON object"))


@pytest.mark.parametrize("role", ["assistant", "tool", "user"])
def test_a_role_of_a_subclass_is_no_role(role: str) -> None:
    message = {"role": Text(role), "content": "x", "tool_call_id": "x"}
    expect(
        row(message),
        ("$.messages[0].role", "unsupported type Text"),
        ("$.messages[0].role", "role must be one of"),
        ("$.messages", "at least one assistant message with weight 1"),
    )


def test_a_literal_of_a_subclass_is_no_literal() -> None:
    kind = Text("function")
    expect(
        row({**calling({**call(), "type": kind})}, result(), tools=[{**tool(), "type": kind}]),
        ("$.messages[0].tool_calls[0].type", "unsupported type Text"),
        ("$.tools[0].type", "unsupported type Text"),
        ("$.tools[0].type", 'literal "function"'),
        ("$.messages[0].tool_calls[0].type", 'literal "function"'),
    )


def test_a_message_with_a_role_of_a_subclass_closes_the_window() -> None:
    found = problems(row(calling(), {**result(), "role": Text("tool")}, tools=[tool()]))
    assert [location for location, _ in found] == [
        "$.messages[1].role",
        "$.messages[0].tool_calls",
        "$.messages[1].role",
    ]


def test_keys_that_are_no_strings_never_crash_the_check_of_unknown_ones() -> None:
    odd: Any = {1: "x", None: "y", "b": 1, "a": 1}
    expect(
        {**row({**SAY, **odd}, z=1), 2: "x"},
        ("$.messages[0]", "object key 1 must be a string"),
        ("$.messages[0]", "object key None must be a string"),
        ("$", "object key 2 must be a string"),
        ("$", "unknown top-level key(s): z"),
        ("$.messages[0]", "unknown key(s): a, b"),
    )
    inner = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}", 3: 4}, 5: 6}
    definition = {"type": "function", 7: 8, "function": {"name": "f", "parameters": {}, 9: 10}}
    found = problems(
        row(
            {"role": "assistant", "tool_calls": [inner]},
            {"role": "tool", "tool_call_id": "c1", "content": "", 11: 12},
            tools=[definition],
            metadata={13: 14},
        )
    )
    assert len(found) == 6
    assert all("must be a string" in message for _, message in found)
