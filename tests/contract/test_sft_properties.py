"""What holds for any rows and any bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmax.sft import SftDataset, SftDatasetError
from tests.contract.sft_lab import Row, line_of, read, row

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NUMBERS = st.one_of(st.integers(), st.integers(-(10**40), 10**40), st.floats(allow_nan=False, allow_infinity=False))
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, TEXT)
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3))
OBJECTS = st.dictionaries(TEXT, JSON, max_size=3)
NAMES = ("f", "g", "é")


@st.composite
def valid_rows(draw: st.DrawFn) -> Row:
    """Draw any row that keeps the rules: turns of all roles, calls answered in order, one turn to learn from."""
    messages: list[Row] = []
    calls = 0
    for _ in range(draw(st.integers(0, 4))):
        kind = draw(st.sampled_from(["system", "user", "says", "calls"]))
        if kind in ("system", "user"):
            messages.append({"role": kind, "content": draw(TEXT.filter(bool))})
            continue
        message: Row = {"role": "assistant"}
        if draw(st.booleans()):
            message["weight"] = draw(st.sampled_from([0, 1]))
        if kind == "says":
            messages.append(message | {"content": draw(TEXT.filter(bool))})
            continue
        if draw(st.booleans()):
            message["content"] = draw(TEXT | st.none())
        ids = [f"call {calls + number}" for number in range(draw(st.integers(1, 3)))]
        calls += len(ids)
        message["tool_calls"] = [
            {
                "type": "function",
                "id": call_id,
                "function": {"name": draw(st.sampled_from(NAMES)), "arguments": json.dumps(draw(OBJECTS))},
            }
            for call_id in ids
        ]
        messages.append(message)
        messages += [{"role": "tool", "tool_call_id": call_id, "content": draw(TEXT)} for call_id in ids]
    messages.append({"role": "assistant", "content": draw(TEXT.filter(bool))})
    found = row(*messages)
    if calls or draw(st.booleans()):
        names = NAMES if calls else draw(st.lists(st.sampled_from(NAMES), unique=True))
        found["tools"] = [
            {"type": "function", "function": {"name": name, "parameters": {"type": "object", "x": draw(JSON)}}}
            for name in names
        ]
    if draw(st.booleans()):
        # a letter in front, so that no key is a reserved one
        found["metadata"] = {f"k{key}": value for key, value in draw(OBJECTS).items()}
    return found


def as_json(value: Any) -> str:
    """Tell 1, 1.0 and True apart, which compare as equal."""
    return json.dumps(value, sort_keys=True)


@given(st.lists(valid_rows(), min_size=1, max_size=3))
def test_valid_rows_make_a_dataset_of_exactly_them(rows: list[Row]) -> None:
    dataset = SftDataset.from_rows(rows)
    assert [as_json(found) for found in dataset] == [as_json(value) for value in rows]


@given(st.lists(valid_rows(), min_size=1, max_size=3), st.booleans(), st.sampled_from([None, 1]))
def test_canonical_bytes_are_read_back_to_themselves_however_the_rows_were_written(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Row], ascii_only: bool, spaces: int | None
) -> None:
    folder = tmp_path_factory.mktemp("sft")
    separators = (" , ", " : ") if spaces else (",", ":")
    content = "\n\n".join(json.dumps(value, ensure_ascii=ascii_only, separators=separators) for value in rows)
    canonical = read(folder, content.encode()).to_jsonl_bytes()
    assert canonical == SftDataset.from_rows(rows).to_jsonl_bytes()
    assert read(folder, canonical).to_jsonl_bytes() == canonical
    assert SftDataset.from_rows(map(json.loads, canonical.decode().split("\n")[:-1])).to_jsonl_bytes() == canonical


WORDS = [
    "messages", "tools", "metadata", "role", "content", "tool_calls", "tool_call_id", "weight", "id", "type",
    "function", "name", "parameters", "description", "arguments", "assistant", "system", "tool", "user", "object", "f",
    "c1", "{}", "_castform_",
]  # fmt: skip
ODD = st.one_of(
    st.sampled_from([*WORDS, "", "\ud800", float("nan"), float("inf"), b"x", (), {1: 2}, {"\ud800": 1}, 0, 1]),
    st.integers(4299, 4301).map(lambda digits: 10**digits),
    SCALARS,
)
ANYTHING = st.recursive(
    ODD,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(WORDS) | st.integers(), inner, max_size=5)
    ),
    max_leaves=30,
)


def outcome(value: Any) -> list[dict[str, Any]]:
    try:
        SftDataset.from_rows([value])
    except SftDatasetError as error:
        return [issue.as_dict() for issue in error.issues]
    return []


@given(ANYTHING)
def test_any_value_is_a_valid_row_or_has_issues_and_both_the_same_every_time(value: Any) -> None:
    assert outcome(value) == outcome(value)


@st.composite
def damaged_rows(draw: st.DrawFn) -> Any:
    """Draw a valid row with something else in one place of it."""
    value: Any = draw(valid_rows())
    spots: list[tuple[Any, Any]] = []

    def collect(node: Any) -> None:
        for key in list(node) if isinstance(node, dict) else range(len(node)):
            spots.append((node, key))
            if isinstance(node[key], (dict, list)):
                collect(node[key])

    collect(value)
    node, key = draw(st.sampled_from(spots))
    if draw(st.booleans()):
        node[key] = draw(ANYTHING)
    else:
        del node[key]
    return value


@given(damaged_rows())
def test_a_damaged_row_has_issues_each_on_one_line_or_is_still_written_and_read_back(value: Any) -> None:
    try:
        dataset = SftDataset.from_rows([value])
    except SftDatasetError as error:
        for issue in error.issues:
            assert issue.location.startswith("$")
            assert issue.message
            assert len(issue.describe().splitlines()) == 1
    else:
        assert SftDataset.from_rows(dataset.rows).to_jsonl_bytes() == dataset.to_jsonl_bytes()


def read_anything(folder: Path, content: bytes) -> None:
    try:
        dataset = read(folder, content)
    except SftDatasetError as error:
        assert error.issues
    else:
        assert read(folder, dataset.to_jsonl_bytes()).to_jsonl_bytes() == dataset.to_jsonl_bytes()


@given(st.binary(max_size=60))
def test_any_bytes_are_a_dataset_or_a_dataset_error(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    read_anything(tmp_path_factory.mktemp("sft"), content)


FRAGMENTS = [
    b"\n",
    b"\r",
    b'"',
    b"\\",
    b"\\u",
    b"d800",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"NaN",
    b"1e999",
    b"\xff",
    b"\x00",
]


@given(valid_rows(), st.lists(st.tuples(st.integers(0, 10_000), st.sampled_from(FRAGMENTS), st.booleans()), max_size=3))
def test_a_damaged_file_is_a_dataset_or_a_dataset_error(
    tmp_path_factory: pytest.TempPathFactory, value: Row, damages: list[tuple[int, bytes, bool]]
) -> None:
    content = line_of(value) * 2
    for place, fragment, replaces in damages:
        place %= len(content)
        content = content[:place] + fragment + content[place + replaces :]
    read_anything(tmp_path_factory.mktemp("sft"), content)


@given(valid_rows(), st.integers(0, 10_000))
def test_a_file_cut_anywhere_is_a_dataset_or_a_dataset_error(
    tmp_path_factory: pytest.TempPathFactory, value: Row, place: int
) -> None:
    content = line_of(value)
    read_anything(tmp_path_factory.mktemp("sft"), content[: place % len(content)])
