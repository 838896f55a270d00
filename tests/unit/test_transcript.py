"""What a transcript holds is told from its text, before anything is built of it."""

from __future__ import annotations

import json
import subprocess
import sys
import tracemalloc
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from runner.limits import MAX_TRANSCRIPT_BYTES, MAX_TRANSCRIPT_DEPTH, MAX_TRANSCRIPT_VALUES, VALUE_BYTES
from runner.transcript import decoded, is_flat, values

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=30,
)


def count(value: Any) -> int:
    """Arrays, objects, and what they hold but for the first item of each array."""
    if isinstance(value, dict):
        return 1 + len(value) + max(0, len(value) - 1) + sum(map(count, value.values()))
    if isinstance(value, list):
        return 1 + max(0, len(value) - 1) + sum(map(count, value))
    return 0


def depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(depth, inner), default=0)


@settings(max_examples=200, deadline=None)
@given(JSON, st.booleans())
@example("[", False)
@example(["[{"], False)
def test_values_and_depth_are_those_of_what_is_decoded_whatever_the_texts_hold(value: Any, ascii_only: bool) -> None:
    data = json.dumps(value, ensure_ascii=ascii_only).encode()
    assert values(data, exact=True) == count(value) <= values(data, exact=False)
    assert is_flat(data, depth(value))
    assert depth(value) == 0 or not is_flat(data, depth(value) - 1)


@pytest.mark.parametrize(
    "text",
    ['["', '["\\"]', '["\\', "[[[", "]]]", "[}", '"[[[[', '["a" "[[["]', '\\"[[[', ""],
)
def test_text_that_is_no_json_is_measured_all_the_same_and_refused(text: str) -> None:
    data = text.encode()
    assert values(data, exact=True) <= values(data, exact=False)
    with pytest.raises(ValueError):
        decoded(data)


def test_nesting_up_to_the_limit_is_decoded_and_one_more_is_not() -> None:
    data = b"[" * MAX_TRANSCRIPT_DEPTH + b"]" * MAX_TRANSCRIPT_DEPTH
    assert depth(decoded(data)) == MAX_TRANSCRIPT_DEPTH
    with pytest.raises(ValueError, match="more than 100 arrays and objects inside each other"):
        decoded(b"[" + data + b"]")


@pytest.mark.parametrize("unit", ["[]", "{}", "[[]]", "300", '{"a":1}', '{"%x":[]}', '"ab"'])
def test_a_decoded_transcript_takes_no_more_than_its_measure_says(unit: str) -> None:
    data = f"[{','.join(unit.replace('%x', f'{i:x}') for i in range(20_000))}]".encode()
    tracemalloc.start()
    try:
        kept = decoded(data)
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(kept) == 20_000
    assert size < len(data) + VALUE_BYTES * values(data, exact=True)


@pytest.mark.parametrize("unit", ['""', '"ab"', '{"":0}', '"\\""', '"[{,:"'])
def test_measuring_takes_little_memory_however_many_texts_there_are(unit: str) -> None:
    data = b"[" + ",".join([unit] * 100_000).encode() + b"]"
    tracemalloc.start()
    try:
        values(data, exact=True)
        is_flat(data)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 3 * len(data) + 2**20


def test_a_text_may_begin_or_end_anywhere() -> None:
    for size in range(16 * 1024 - 8, 16 * 1024 + 8):
        value = ["x" * size + "[\\", ['["', {"a": "]"}]]
        data = json.dumps(value).encode()
        assert values(data, exact=True) == count(value)
        assert is_flat(data, depth(value))
        assert not is_flat(data, depth(value) - 1)


def test_the_most_that_crosses_is_bounded_whatever_it_is_made_of() -> None:
    assert MAX_TRANSCRIPT_VALUES * VALUE_BYTES < 20 * 2**20
    assert MAX_TRANSCRIPT_BYTES < 64 * 2**20


def test_deep_nesting_is_refused_on_a_thread_with_a_small_stack_too() -> None:
    """In a process of its own, since what it guards against is a segmentation fault."""
    code = """
import threading
from runner.transcript import decoded

def refuse():
    for levels in (101, 400, 990, 100_000):
        for opening, closing in ((b"[", b"]"), (b'{"a":', b"}")):
            try:
                decoded(b"[" + opening * levels + b"1" + closing * levels + b"]")
            except ValueError:
                print("refused")

threading.stack_size(64 * 1024)
thread = threading.Thread(target=refuse)
thread.start()
thread.join()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "refused\n" * 8), done.stderr
