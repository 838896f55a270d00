"""Issues of a dataset, and the error that carries them."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import pytest

from benchmax.sft import SFT_DATASET_FORMAT, SftDatasetError, SftIssue


def test_the_format_has_a_name() -> None:
    assert SFT_DATASET_FORMAT == "benchmax-sft-v1"


def test_an_issue_has_a_message_and_a_place_and_is_frozen_and_slotted() -> None:
    issue = SftIssue("m", "$.messages", 3, 2)
    assert (issue.message, issue.location, issue.line, issue.row) == ("m", "$.messages", 3, 2)
    assert (SftIssue("m", "$").line, SftIssue("m", "$").row) == (None, None)
    assert [field.name for field in dataclasses.fields(SftIssue)] == ["message", "location", "line", "row"]
    assert not hasattr(issue, "__dict__")
    changed: Any = issue
    with pytest.raises(dataclasses.FrozenInstanceError):
        changed.message = "other"


def test_an_issue_as_a_dictionary_has_four_keys() -> None:
    assert SftIssue("m", "$", 3, 2).as_dict() == {"line": 3, "location": "$", "message": "m", "row": 2}
    assert list(SftIssue("m", "$").as_dict().items()) == [
        ("line", None), ("location", "$"), ("message", "m"), ("row", None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("issue", "text"),
    [
        (SftIssue("m", "$.a[0]", 3, 2), "line 3 row 2 $.a[0]: m"),
        (SftIssue("m", "$.a[0]", row=2), "row 2 $.a[0]: m"),
        (SftIssue("m", "$.a[0]", line=3), "line 3 $.a[0]: m"),
        (SftIssue("m", "$"), "$: m"),
        (SftIssue("m", "$", 1, 0), "line 1 row 0 $: m"),
        (SftIssue("é😀", "$.ü"), "$.ü: é😀"),
    ],
)
def test_an_issue_is_described_by_its_place_and_message(issue: SftIssue, text: str) -> None:
    assert issue.describe() == text


def test_a_description_is_one_line_whatever_a_key_contains() -> None:
    keys = "a\nb\r\x1b[31m\x85\u2028\u2029\v\f\x1c\ud800"
    issue = SftIssue(f"unknown key(s): {keys}", f"$.{keys}")
    assert len(issue.describe().splitlines()) == 1
    issue.describe().encode("utf-8")
    assert "a\\nb\\r\\x1b[31m\\x85\\u2028" in issue.describe()
    assert issue.as_dict()["location"] == f"$.{keys}"


def test_an_error_is_a_value_error_with_all_issues() -> None:
    issues = [SftIssue("one", "$", 1, 0), SftIssue("two", "$.a", 2, 1)]
    error = SftDatasetError(issues)
    assert isinstance(error, ValueError)
    assert error.issues == tuple(issues)
    assert str(error) == "invalid benchmax-sft-v1 dataset: 2 issue(s)\n  line 1 row 0 $: one\n  line 2 row 1 $.a: two"


@pytest.mark.parametrize(("count", "more"), [(20, None), (21, "... and 1 more"), (50, "... and 30 more")])
def test_the_text_shows_the_first_twenty_and_counts_the_rest(count: int, more: str | None) -> None:
    error = SftDatasetError(SftIssue(f"m{number}", "$", row=number) for number in range(count))
    lines = str(error).splitlines()
    assert lines[0] == f"invalid benchmax-sft-v1 dataset: {count} issue(s)"
    assert lines[1:21] == [f"  row {number} $: m{number}" for number in range(20)]
    assert lines[21:] == ([] if more is None else [more])
    assert len(error.issues) == count


@pytest.mark.parametrize("nothing", [(), []])
def test_an_error_of_no_issue_is_a_plain_value_error(nothing: Any) -> None:
    with pytest.raises(ValueError, match="at least one issue") as caught:
        SftDatasetError(nothing)
    assert type(caught.value) is ValueError


def test_issues_and_errors_pickle() -> None:
    error = SftDatasetError([SftIssue("m", "$", 1, 0)])
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.issues, str(copy)) == (error.issues, str(error))
