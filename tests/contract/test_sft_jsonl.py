"""Reading a dataset from a JSON Lines file: lines, numbering, and what is wrong with a line before it is a row."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmax.sft import SftDataset, SftIssue
from tests.contract.sft_lab import SAY, issues_of_file, line_of, nested, read, row

GOOD = line_of(row())
BOM = b"\xef\xbb\xbf"


def test_physical_lines_count_from_one_and_rows_from_zero_and_blank_lines_have_no_row(tmp_path: Path) -> None:
    content = b"\n" + GOOD + b" \t\r\f\v\n" + b"[]\n" + b"\r\n" + b"7\n"
    places = [(issue.line, issue.row, issue.location) for issue in issues_of_file(tmp_path, content)]
    assert places == [(4, 1, "$"), (6, 2, "$")]


def test_a_line_that_is_not_valid_consumes_a_row(tmp_path: Path) -> None:
    content = b"{\n" + b"\xff\n" + GOOD + line_of({"messages": []})
    assert [(issue.line, issue.row) for issue in issues_of_file(tmp_path, content)] == [(1, 0), (2, 1), (4, 3)]


def test_only_a_line_feed_ends_a_line(tmp_path: Path) -> None:
    text = "x\u2028\u2029\x85y"
    dataset = read(tmp_path, f'{{"messages": [{{"role": "assistant", "content": "{text}"}}]}}'.encode())
    assert dataset.rows[0]["messages"][0]["content"] == text
    (issue,) = issues_of_file(tmp_path, GOOD.replace(b"\n", b"\r") + GOOD)
    assert (issue.line, issue.row) == (1, 0)
    assert "invalid JSON:" in issue.message


def test_a_carriage_return_at_the_end_is_harmless(tmp_path: Path) -> None:
    assert len(read(tmp_path, GOOD.replace(b"\n", b"\r\n") * 2)) == 2


def test_the_last_line_needs_no_end(tmp_path: Path) -> None:
    assert len(read(tmp_path, GOOD + GOOD.strip())) == 2


@pytest.mark.parametrize("content", [b"", b"\n", b" \t\r\f\v\n\n"])
def test_a_file_without_rows_is_one_issue_of_no_line_and_no_row(tmp_path: Path, content: bytes) -> None:
    assert issues_of_file(tmp_path, content) == (SftIssue("dataset contains no rows", "$", None, None),)


@pytest.mark.parametrize(
    ("line", "key_terms"),
    [
        (b"\xff", "not valid UTF-8"),
        (b'{"messages": "\xed\xa0\x80"}', "not valid UTF-8"),
        (b'{"a": 1, "a": 1}', "duplicate object key 'a'"),
        (b'{"a": {"b": 1, "b": 2, "c": 3, "c": 4}, "a": 1}', "duplicate object key 'b'"),
        (b'{"a": 1, "\\u0061": 2}', "duplicate object key 'a'"),
        (b'{"it\'s": 1, "it\'s": 2}', 'duplicate object key "it\'s"'),
        (b'{"a": NaN}', "non-finite number literal 'NaN'"),
        (b"[Infinity, NaN]", "non-finite number literal 'Infinity'"),
        (b"-Infinity", "non-finite number literal '-Infinity'"),
        (b"[" * 200_000, "nesting exceeds 64 levels"),
        (b'{"a":' * 200_000, "nesting exceeds 64 levels"),
        (b"{", "invalid JSON: Expecting property name"),
        (b"{} {}", "invalid JSON: Extra data"),
        (b"nan", "invalid JSON:"),
        (b"{'a': 1}", "invalid JSON:"),
        (b'{"a": "\t"}', "invalid JSON: Invalid control character"),
        (b"\x0c{}", "invalid JSON:"),
        (b"1" * 5000, "invalid JSON: Exceeds the limit"),
    ],
    ids=lambda value: None if isinstance(value, str) else str(value[:12]),
)
def test_a_line_that_is_not_strict_json_is_one_issue_at_the_row(tmp_path: Path, line: bytes, key_terms: str) -> None:
    (issue,) = issues_of_file(tmp_path, GOOD + line + b"\n" + GOOD)
    assert (issue.location, issue.line, issue.row) == ("$", 2, 1)
    assert key_terms in issue.message


@pytest.mark.parametrize(
    ("line", "key_terms"),
    [
        (BOM + b"\xff", "BOM"),
        (b'{"a": 1, "a": 1}\xff', "not valid UTF-8"),
        (b'{"a": NaN, "a": 1}', "duplicate object key"),
        (b'[{"a": 1, "a": 1}, NaN', "duplicate object key"),
        (b'[{"a": 1, "a": 1}' + b", [" * 200_000, "duplicate object key"),
        (b"[NaN" + b", [" * 200_000, "non-finite number literal"),
        (b"[NaN, ", "non-finite number literal"),
    ],
)
def test_of_several_reasons_the_first_in_this_order_is_given(tmp_path: Path, line: bytes, key_terms: str) -> None:
    (issue,) = issues_of_file(tmp_path, line)
    assert key_terms in issue.message


def test_a_byte_order_mark_is_refused_on_the_first_line_and_no_json_elsewhere(tmp_path: Path) -> None:
    first, later = issues_of_file(tmp_path, BOM + GOOD + BOM + GOOD)
    assert (first.line, first.row, first.location) == (1, 0, "$")
    assert "BOM" in first.message
    assert (later.line, later.row) == (2, 1)
    assert "invalid JSON:" in later.message
    assert len(issues_of_file(tmp_path, BOM)) == 1


def test_a_number_too_large_for_a_float_is_found_in_its_place(tmp_path: Path) -> None:
    (issue,) = issues_of_file(
        tmp_path, b'{"messages": [{"role": "assistant", "content": "a"}], "metadata": {"x": 1e999}}'
    )
    assert (issue.location, issue.line, issue.row) == ("$.metadata.x", 1, 0)
    assert "must be finite" in issue.message


def test_nesting_that_the_parser_takes_is_found_in_its_place(tmp_path: Path) -> None:
    (issue,) = issues_of_file(tmp_path, line_of(row(SAY, metadata={"x": nested(100)})))
    assert issue.location == "$.metadata.x" + "[0]" * 62
    assert issue.message == "nesting exceeds 64 levels"


def test_issues_are_those_of_the_rows_in_the_order_of_the_file(tmp_path: Path) -> None:
    content = line_of(row(extra=1, metadata=None)) + b"{\n" + line_of({})
    found = [(issue.line, issue.row, issue.location) for issue in issues_of_file(tmp_path, content)]
    assert found == [(1, 0, "$"), (1, 0, "$.metadata"), (2, 1, "$"), (3, 2, "$")]


def test_a_missing_file_is_the_error_of_the_operating_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        SftDataset.from_jsonl(tmp_path / "nothing.jsonl")
    with pytest.raises(IsADirectoryError):
        SftDataset.from_jsonl(tmp_path)


def test_a_path_may_be_a_string(tmp_path: Path) -> None:
    (tmp_path / "data.jsonl").write_bytes(GOOD)
    assert len(SftDataset.from_jsonl(str(tmp_path / "data.jsonl"))) == 1


def test_an_integer_is_too_long_only_where_python_says_so(tmp_path: Path) -> None:
    number = 10**4999
    limit = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        line = line_of(row(SAY, metadata={"n": number}))
        assert read(tmp_path, line).rows[0]["metadata"]["n"] == number
    finally:
        sys.set_int_max_str_digits(limit)
    (issue,) = issues_of_file(tmp_path, line)
    assert "invalid JSON: Exceeds the limit" in issue.message
