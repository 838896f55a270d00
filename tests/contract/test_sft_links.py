"""Which tool result answers which tool call."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.contract.sft_lab import ASK, SAY, Row, call, calling, expect, problems, result, row, tool


def talk(*messages: Any) -> Row:
    return row(*messages, tools=[tool()])


AB = calling(call("a"), call("b"))
ABC = calling(call("a"), call("b"), call("c"))


@pytest.mark.parametrize(
    "messages",
    [
        [AB, result("a"), result("b")],
        [ASK, AB, result("a"), result("b"), SAY, ASK, calling(call("c")), result("c"), SAY],
        [calling(call("a")), result("a"), calling(call("b")), result("b")],
    ],
)
def test_results_directly_after_their_calls_and_in_their_order_are_valid(messages: list[Row]) -> None:
    assert problems(talk(*messages)) == []


def test_a_result_before_its_turn_is_out_of_order_and_the_skipped_one_may_follow() -> None:
    expect(
        talk(ABC, result("b"), result("a"), result("c")),
        ("$.messages[1].tool_call_id", "'b' is out of declaration order"),
    )
    expect(
        talk(ABC, result("c"), result("b"), result("a")),
        ("$.messages[1].tool_call_id", "'c' is out of declaration order"),
        ("$.messages[2].tool_call_id", "'b' is out of declaration order"),
    )


@pytest.mark.parametrize(
    "messages", [[AB, result("a"), result("a"), result("b")], [AB, result("a"), result("b"), result("a")]]
)
def test_a_second_result_of_a_call_is_a_duplicate(messages: list[Row]) -> None:
    (found,) = problems(talk(*messages))
    assert found[0].endswith(".tool_call_id")
    assert "duplicate tool result" in found[1]
    assert "'a'" in found[1]


def test_a_second_result_after_the_window_is_a_duplicate_too() -> None:
    expect(
        talk(calling(call("a")), result("a"), SAY, result("a")),
        ("$.messages[3].tool_call_id", "duplicate tool result"),
    )


def test_a_first_result_after_the_window_is_too_late() -> None:
    expect(
        talk(AB, result("a"), ASK, result("b"), result("b")),
        ("$.messages[0].tool_calls", "'b' have no tool result"),
        ("$.messages[3].tool_call_id", "'b' comes after its tool-call window closed"),
        ("$.messages[4].tool_call_id", "'b' comes after its tool-call window closed"),
    )


def test_a_result_of_a_call_that_was_never_made_is_unknown() -> None:
    expect(talk(SAY, result("it's")), ("$.messages[1].tool_call_id", 'unknown tool_call_id "it\'s"'))
    # made later is not made
    expect(
        talk(result("a"), calling(call("a")), result("a")), ("$.messages[0].tool_call_id", "unknown tool_call_id 'a'")
    )


def test_an_unknown_result_leaves_the_window_open() -> None:
    expect(talk(AB, result("x"), result("a"), result("b")), ("$.messages[1].tool_call_id", "unknown tool_call_id 'x'"))


@pytest.mark.parametrize(
    ("closing", "issues"),
    [
        (ASK, []),
        (SAY, []),
        (calling(call("z")), [("$.messages[1].tool_calls", "'z' have no tool result")]),
        ({"role": "user", "content": ""}, [("$.messages[1].content", "must not be empty")]),
        (7, [("$.messages[1]", "JSON object")]),
        ({}, [("$.messages[1]", "role is required")]),
        ({"role": "x"}, [("$.messages[1].role", "role must be one of")]),
        ({"role": ["tool"]}, [("$.messages[1].role", "role must be one of")]),
    ],
)
def test_any_other_message_closes_the_window_and_unanswered_calls_come_before_its_own_issues(
    closing: Any, issues: list[tuple[str, str]]
) -> None:
    expect(talk(AB, closing), ("$.messages[0].tool_calls", "tool call id(s) 'a', 'b' have no tool result"), *issues)


def test_the_end_of_the_row_closes_the_window() -> None:
    expect(talk(ABC, result("b")), *[
        ("$.messages[1].tool_call_id", "out of declaration order"),
        ("$.messages[0].tool_calls", "tool call id(s) 'a', 'c' have no tool result"),
    ])  # fmt: skip


def test_a_tool_message_that_is_not_valid_leaves_the_window_open() -> None:
    expect(
        talk(AB, {"role": "tool"}, result("a"), result("b")),
        ("$.messages[1].content", "must be a string"),
        ("$.messages[1].tool_call_id", "non-empty string"),
    )


def test_a_call_with_other_issues_expects_its_result_and_one_without_a_usable_id_expects_none() -> None:
    broken = {"id": "a", "function": 7}
    expect(
        talk(calling(broken, call(""), call("b")), result("a"), result("b")),
        ("$.messages[0].tool_calls[0].type", 'literal "function"'),
        ("$.messages[0].tool_calls[0].function", "JSON object"),
        ("$.messages[0].tool_calls[1].id", "non-empty string"),
    )


def test_a_repeated_id_expects_no_second_result() -> None:
    expect(
        talk(calling(call("a")), result("a"), calling(call("a"), call("b")), result("b")),
        ("$.messages[2].tool_calls[0].id", "duplicate tool call id 'a'"),
    )


def test_rows_have_ids_of_their_own() -> None:
    assert problems(talk(calling(call("a")), result("a"))) == problems(talk(calling(call("a")), result("a"))) == []


@given(st.permutations(range(5)), st.integers(0, 5))
def test_of_answers_in_any_order_those_before_their_turn_are_named_and_the_missing_ones_once(
    order: list[int], answered: int
) -> None:
    given_order = order[:answered]
    found = problems(talk(calling(*(call(str(number)) for number in range(5))), *(result(str(n)) for n in given_order)))
    early = [
        position
        for position, number in enumerate(given_order)
        if any(other not in given_order[:position] for other in range(number))
    ]
    missing = ", ".join(repr(str(number)) for number in range(5) if number not in given_order)
    expected = [f"$.messages[{position + 1}].tool_call_id" for position in early]
    assert [location for location, _ in found] == expected + (["$.messages[0].tool_calls"] if missing else [])
    if missing:
        assert f"tool call id(s) {missing} have no tool result" in found[-1][1]
