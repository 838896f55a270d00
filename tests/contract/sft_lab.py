"""Rows of fine-tuning datasets, and what is found wrong with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmax.sft import SftDataset, SftDatasetError, SftIssue

Row = dict[str, Any]

ASK: Row = {"role": "user", "content": "q"}
SAY: Row = {"role": "assistant", "content": "a"}


def row(*messages: Any, **more: Any) -> Row:
    return {"messages": list(messages) if messages else [ASK, SAY], **more}


def tool(name: str = "f", **more: Any) -> Row:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object"}, **more}}


def call(call_id: str = "c1", name: str = "f", arguments: str = "{}") -> Row:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def calling(*calls: Any, **more: Any) -> Row:
    return {"role": "assistant", "tool_calls": list(calls) or [call()], **more}


def result(call_id: str = "c1", content: str = "r") -> Row:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def issues_of_rows(*rows: Any) -> tuple[SftIssue, ...]:
    """Return the issues of rows that are not all valid."""
    with pytest.raises(SftDatasetError) as caught:
        SftDataset.from_rows(rows)
    return caught.value.issues


def problems(value: Any) -> list[tuple[str, str]]:
    """Return location and message of each issue of a single row; none if it is valid."""
    try:
        SftDataset.from_rows([value])
    except SftDatasetError as error:
        assert {(issue.line, issue.row) for issue in error.issues} == {(None, 0)}
        return [(issue.location, issue.message) for issue in error.issues]
    return []


def expect(value: Any, *expected: tuple[str, str]) -> None:
    """Assert that a row has exactly these issues, in order: the location, and what the message contains."""
    found = problems(value)
    assert [location for location, _ in found] == [location for location, _ in expected], found
    for (_, message), (_, key_terms) in zip(found, expected, strict=True):
        assert key_terms in message, found


def issues_of_file(folder: Path, content: bytes) -> tuple[SftIssue, ...]:
    """Return the issues of a file that is not valid."""
    with pytest.raises(SftDatasetError) as caught:
        read(folder, content)
    return caught.value.issues


def read(folder: Path, content: bytes) -> SftDataset:
    path = folder / "data.jsonl"
    path.write_bytes(content)
    return SftDataset.from_jsonl(path)


def line_of(value: Any) -> bytes:
    return json.dumps(value).encode() + b"\n"


def nested(levels: int) -> Any:
    """Return a list that consists of so many lists inside each other."""
    value: Any = []
    for _ in range(levels - 1):
        value = [value]
    return value
