"""JSON is read as clients and servers in Python write it, and written so that there is one way to read it."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.gateway import json_text
from runner.gateway.json_text import read_json, read_outline, write_json


@pytest.mark.parametrize(
    "text", [b'{"a": NaN}', b'{"a": -Infinity}', b'["\\ud800"]', b'{"a": 123456789012345678901234567890}']
)
def test_what_only_pythons_own_reader_takes_is_read_and_written_the_same(text: bytes) -> None:
    value = read_json(text)
    assert str(json.loads(write_json(value, like=text))) == str(json.loads(text))


def test_a_member_that_stands_there_twice_is_written_once() -> None:
    text = b'{"model": "a", "model": "b", "n": null, "x": 0.1}'
    assert write_json(read_json(text), like=text) == b'{"model":"b","n":null,"x":0.1}'


@pytest.mark.parametrize("text", [b"", b"{", b"<html>", b"\xff\xfe", b"[" * 100_000, b'{"a":' * 100_000])
def test_what_is_no_json_is_a_value_error_whatever_it_is(text: bytes) -> None:
    with pytest.raises(ValueError):
        read_json(text)


JSON = st.recursive(
    st.none() | st.integers() | st.text(st.sampled_from('a\\",:[{]}é')),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.sampled_from('a\\",:[{')), inner),
    max_leaves=8,
)


@settings(max_examples=40, deadline=None)
@given(st.lists(JSON, max_size=4), st.integers(1, 9))
def test_values_are_counted_outside_of_texts_wherever_a_text_is_cut(values: list[Any], window: int) -> None:
    text = json.dumps(values).encode()
    outside = re.sub(rb'"(?:[^"\\]|\\.)*"', b"", text)
    expected = sum(outside.count(mark) for mark in (b",", b"[", b"{"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_text, "_FEW", 0)
        patch.setattr(json_text, "_WINDOW", window)
        assert json_text.count_values(text) == (expected if json_text._marks(text) else 0)


@pytest.mark.parametrize("text", [b'{"usage": {"total_tokens": 7}, "data": [[1, 2]]}', b'{"usage": null, "x": NaN}'])
def test_of_an_answer_that_is_mostly_data_only_its_outline_is_kept(text: bytes) -> None:
    found = read_outline(text)
    assert found.get("usage") == json.loads(text)["usage"]


@pytest.mark.parametrize(
    "text", [b"[]", b"null", b"", b"{", b'{"data": [}', b"[" * 100_000, b'{"data": ' + b"[" * 100_000]
)
def test_what_is_no_object_has_no_outline(text: bytes) -> None:
    with pytest.raises(ValueError):
        read_outline(text)
