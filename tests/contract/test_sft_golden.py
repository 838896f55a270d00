"""Files with what they give, byte for byte and message for message: a change of either is one that users see."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmax.sft import SftDataset, SftDatasetError

FIXTURES = Path(__file__).parents[1] / "fixtures" / "sft"
VALID = sorted((FIXTURES / "valid").glob("*.input.jsonl"))
INVALID = sorted((FIXTURES / "invalid").glob("*.input.jsonl"))
EXPECTED: dict[str, Any] = json.loads((FIXTURES / "invalid" / "expected_issues.json").read_text())


@pytest.mark.parametrize("path", VALID, ids=lambda path: path.name)
def test_a_valid_file_has_this_canonical_form(path: Path) -> None:
    canonical = path.with_name(path.name.replace(".input.", ".canonical."))
    assert SftDataset.from_jsonl(path).to_jsonl_bytes() == canonical.read_bytes()
    assert SftDataset.from_jsonl(canonical).to_jsonl_bytes() == canonical.read_bytes()


@pytest.mark.parametrize("path", INVALID, ids=lambda path: path.name)
def test_an_invalid_file_has_these_issues(path: Path) -> None:
    with pytest.raises(SftDatasetError) as caught:
        SftDataset.from_jsonl(path)
    assert [issue.as_dict() for issue in caught.value.issues] == EXPECTED[path.name]


def test_no_fixture_is_forgotten() -> None:
    assert VALID
    assert {path.name for path in INVALID} == EXPECTED.keys()
