"""Comparing JSON documents: the first place that differs, and both values there."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.recording.comparing import PATH_CHARS, SHOWN_CHARS, first_difference

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.parametrize(
    ("first", "second", "path", "shown"),
    [
        ({"a": [1, {"b": "x"}]}, {"a": [1, {"b": "y"}]}, "$.a[1].b", ('"x"', '"y"')),
        ({"a": 1}, {}, "$.a", ("1", "nothing")),
        ({}, {"a": None}, "$.a", ("nothing", "null")),
        ([1, 2], [1], "$[1]", ("2", "nothing")),
        ([], [[1, 2]], "$[0]", ("nothing", "an array of 2 items")),
        ({"a": {"x": 1}}, {"a": []}, "$.a", ("an object of 1 members", "an array of 0 items")),
        ({"odd name": 1}, {"odd name": 2}, '$["odd name"]', ("1", "2")),
        (True, 1, "$", ("true", "1")),
        (0, False, "$", ("0", "false")),
        ("1", 1, "$", ('"1"', "1")),
        (None, 0, "$", ("null", "0")),
        (1.0, 1.0000001, "$", ("1.0", "1.0000001")),
        ({"b": 1, "a": 1}, {"a": 2, "b": 2}, "$.b", ("1", "2")),
    ],
)
def test_the_first_place_is_named_with_both_values(first: Any, second: Any, path: str, shown: tuple[str, str]) -> None:
    found = first_difference(first, second)
    assert found is not None
    assert (found.path, (found.first, found.second)) == (path, shown)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        (1, 1.0),
        (math.nan, math.nan),
        ([{}, []], [{}, []]),
        ("\ud800", "\ud800"),
    ],
)
def test_equal_documents_have_no_difference(first: Any, second: Any) -> None:
    assert first_difference(first, second) is None


@given(JSON)
def test_everything_equals_itself(document: Any) -> None:
    assert first_difference(document, document) is None


@given(JSON, JSON)
def test_who_comes_first_makes_no_difference(first: Any, second: Any) -> None:
    assert (first_difference(first, second) is None) == (first_difference(second, first) is None)


def test_long_texts_are_shown_where_they_begin_to_differ() -> None:
    found = first_difference("a" * 5000 + "left" + "b" * 5000, "a" * 5000 + "right" + "b" * 5000)
    assert found is not None
    assert "left" in found.first
    assert "right" in found.second
    assert found.first.startswith("…(")
    assert len(found.first) < SHOWN_CHARS + 60


def test_names_and_values_of_any_length_are_bounded() -> None:
    for name in ("n" * 10_000, " " * 10_000):
        found = first_difference({name: {name: {name: "v" * 10_000}}}, {name: {name: {name: 1}}})
        assert found is not None
        assert max(len(found.first), len(found.second)) < SHOWN_CHARS + 60
        assert len(found.path) <= PATH_CHARS + 3


def test_a_document_may_be_deeper_than_recursion_goes() -> None:
    first: Any = 1
    second: Any = 2
    for _ in range(50_000):
        first, second = [first], [second]
    found = first_difference(first, second)
    assert found is not None
    assert (found.first, found.second) == ("1", "2")
    assert found.path.startswith("$[0][0]")
