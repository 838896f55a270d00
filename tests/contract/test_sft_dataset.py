"""A whole dataset: how it is made, what it holds, and the bytes it is written as."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmax.sft import SftDataset, SftIssue
from tests.contract.sft_lab import ASK, SAY, Row, calling, issues_of_rows, line_of, read, result, row, tool


@pytest.mark.parametrize("arguments", [(), ([row()],)])
def test_a_dataset_cannot_be_constructed_directly(arguments: Any) -> None:
    construct: Any = SftDataset
    with pytest.raises(TypeError, match="from_jsonl"):
        construct(*arguments)
    with pytest.raises(TypeError, match="from_rows"):
        construct(rows=[])


def test_a_dataset_is_immutable_and_slotted() -> None:
    dataset: Any = SftDataset.from_rows([row()])
    assert not hasattr(dataset, "__dict__")
    for name in ("rows", "anything"):
        with pytest.raises(AttributeError):
            setattr(dataset, name, ())
    with pytest.raises(AttributeError):
        del dataset.rows
    assert len(dataset) == 1


def test_a_dataset_has_a_length_an_order_and_a_tuple_of_dictionaries() -> None:
    rows = [row({"role": "assistant", "content": str(number)}) for number in range(30)]
    dataset = SftDataset.from_rows(rows)
    assert len(dataset) == 30
    assert list(dataset) == rows
    assert dataset.rows == tuple(rows)
    assert "30 rows" in repr(dataset)


def test_rows_are_taken_from_any_iterable() -> None:
    def lazily() -> Iterator[Row]:
        yield row()
        yield row(SAY)

    assert SftDataset.from_rows(lazily()).rows == (row(), row(SAY))


@pytest.mark.parametrize("nothing", [[], (), iter(())])
def test_no_rows_are_one_issue_of_no_line_and_no_row(nothing: Any) -> None:
    assert issues_of_rows(*nothing) == (SftIssue("dataset contains no rows", "$", None, None),)


def test_a_dictionary_in_place_of_rows_is_iterated_over_its_keys() -> None:
    found = issues_of_rows(*row(extra=1))
    assert [(issue.row, issue.location) for issue in found] == [(0, "$"), (1, "$")]
    assert all("row must be a JSON object" in issue.message for issue in found)


def test_what_cannot_be_iterated_over_is_a_type_error() -> None:
    wrong: Any = 7
    with pytest.raises(TypeError):
        SftDataset.from_rows(wrong)


def test_issues_of_all_rows_come_in_their_order_and_name_no_line() -> None:
    found = issues_of_rows({}, row(), "x", row(a=1, metadata=None))
    assert [(issue.line, issue.row, issue.location) for issue in found] == [
        (None, 0, "$"),
        (None, 2, "$"),
        (None, 3, "$"),
        (None, 3, "$.metadata"),
    ]


def test_one_row_that_is_not_valid_leaves_no_dataset_of_the_others() -> None:
    assert len(issues_of_rows(row(), row(extra=1), row())) == 1


def test_what_a_dataset_holds_is_its_own() -> None:
    given = row(tools=[tool()], metadata={"a": [1]})
    dataset = SftDataset.from_rows([given])
    expected = copy.deepcopy(given)
    given["metadata"]["a"].append(2)
    given["messages"].clear()
    assert dataset.rows == (expected,)


def test_what_is_written_does_not_follow_a_row_that_somebody_changes_nevertheless() -> None:
    dataset = SftDataset.from_rows([row()])
    before = dataset.to_jsonl_bytes()
    dataset.rows[0]["messages"].clear()
    assert dataset.to_jsonl_bytes() == before


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_a_dataset_can_be_copied_and_pickled(duplicate: Any) -> None:
    dataset = SftDataset.from_rows([row(), row(SAY)])
    assert duplicate(dataset).to_jsonl_bytes() == dataset.to_jsonl_bytes()


# --- canonical bytes


def test_canonical_bytes_are_sorted_compact_raw_utf_8_and_end_every_row() -> None:
    value = {
        "tools": [],
        "metadata": {"ü": 1.5, "z": None, "b": True},
        "messages": [{"role": "assistant", "content": "é😀"}],
    }
    assert (
        SftDataset.from_rows([value, row(SAY)]).to_jsonl_bytes()
        == (
            '{"messages":[{"content":"é😀","role":"assistant"}],"metadata":{"b":true,"z":null,"ü":1.5},"tools":[]}\n'
            '{"messages":[{"content":"a","role":"assistant"}]}\n'
        ).encode()
    )


@pytest.mark.parametrize(
    "value",
    [
        row(SAY),
        row({**SAY, "weight": 1}),
        row({**SAY, "weight": 0}, SAY),
        row(tools=[]),
        row(metadata={}),
        row({**calling(), "content": None}, result(), tools=[tool()]),
        row({**calling(), "content": ""}, result(content=""), tools=[tool(description="")]),
    ],
)
def test_keys_are_kept_as_given_and_none_is_added(value: Row) -> None:
    dataset = SftDataset.from_rows([value])
    assert dataset.rows == (value,)
    assert json.loads(dataset.to_jsonl_bytes()) == value


def test_arguments_stay_the_text_that_they_were() -> None:
    arguments = ' {"b": 1.50, "a": "\\u00e9"}\n'
    value = row(calling({"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}}), result())
    dataset = SftDataset.from_rows([{**value, "tools": [tool()]}])
    assert dataset.rows[0]["messages"][0]["tool_calls"][0]["function"]["arguments"] == arguments


def test_numbers_and_texts_are_written_in_one_form(tmp_path: Path) -> None:
    numbers = b"[1.0, 1e5, -0.0, -0, 1E-7, 100000000000000000000, 1e16]"
    text = rb'"\u00e9\ud83d\ude00\/\u0000\u2028\u007f\"\\"'
    line = b'{"metadata": {"n": %s, "t": %s}, "messages": [{"role": "assistant", "content": "a"}]}' % (numbers, text)
    written = read(tmp_path, line).to_jsonl_bytes().decode()
    assert '"n":[1.0,100000.0,-0.0,0,1e-07,100000000000000000000,1e+16]' in written
    assert '"t":"é😀/\\u0000\u2028\x7f\\"\\\\"' in written
    assert read(tmp_path, written.encode()).to_jsonl_bytes().decode() == written


def test_a_file_and_its_rows_make_the_same_dataset(tmp_path: Path) -> None:
    rows = [row(ASK, SAY, metadata={"a": 1}), row(calling(), result(), SAY, tools=[tool()])]
    from_file = read(tmp_path, b"\n".join(map(line_of, rows)))
    assert from_file.to_jsonl_bytes() == SftDataset.from_rows(rows).to_jsonl_bytes()
    assert from_file.rows == tuple(rows)
