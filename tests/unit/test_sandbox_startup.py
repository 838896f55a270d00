"""What a supervisor has in place of the standard library's, and that it loads nothing slow."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.process import SUPERVISOR
from runner.sandbox.startup import read_json, suppress, write_json

SLOW = {"asyncio", "collections", "contextlib", "enum", "functools", "json", "re", "signal", "socket", "subprocess"}
TEXTS = st.text() | st.text(st.characters(categories=["Cs"]))
SIMPLE = st.integers() | st.booleans() | TEXTS
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
)


@given(st.dictionaries(TEXTS, SIMPLE | st.lists(SIMPLE)))
def test_messages_are_read_by_any_reader_of_json(message: dict[str, Any]) -> None:
    line = write_json(message)
    # halves of a character that stand side by side are one after either
    assert json.loads(line) == json.loads(json.dumps(message))
    assert line.isascii()
    assert "\n" not in line


@given(JSON)
def test_json_is_read_as_the_standard_library_reads_it(value: object) -> None:
    assert read_json(json.dumps(value)) == json.loads(json.dumps(value))


@pytest.mark.parametrize("text", ["", "{", "{} {}", "[1,]", "nul", '{"a": 1}x', "\ufeff{}"])
def test_what_is_no_json_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        read_json(text)


def test_only_the_named_exceptions_are_suppressed() -> None:
    with suppress(OSError, ValueError):
        raise FileNotFoundError
    with pytest.raises(KeyError), suppress(OSError):
        raise KeyError
    with suppress(OSError):
        pass


def test_a_supervisor_loads_nothing_slow() -> None:
    script = "import sys; sys.path.append(sys.argv[1]); import supervisor; print(*sys.modules)"
    folder = str(Path(SUPERVISOR).parent)
    ran = subprocess.run([sys.executable, "-I", "-S", "-c", script, folder], check=True, capture_output=True, text=True)
    assert not SLOW & set(ran.stdout.split())
