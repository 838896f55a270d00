"""What an author's tool wrote beside an artifact: a claim that may hold anything."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from runner.inspecting import AuthorsFacts, read_facts
from runner.inspecting.bounds import MAX_FACTS_BYTES
from runner.inspecting.facts import MAX_LISTED

DIGEST = "ab" * 32


def written(folder: Path, content: object) -> AuthorsFacts:
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    (folder / "env-facts.json").write_bytes(data)
    facts = read_facts(folder, DIGEST)
    assert facts is not None
    return facts


def test_an_artifact_without_facts_has_none(tmp_path: Path) -> None:
    assert read_facts(tmp_path, DIGEST) is None


def test_facts_are_read_with_what_travels_how(tmp_path: Path) -> None:
    facts = written(
        tmp_path,
        {
            "format": 1,
            "digest": DIGEST,
            "cloudpickle_version": "3.1.1",
            "by_value": [{"name": "envs", "bytes": 812}],
            "by_reference": [{"module": "numpy", "source": "numpy"}, {"module": "secret", "source": ""}],
            "source": "class Env: ...",
            "environment": "envs.Env",
            "more": [1, 2, 3],
        },
    )
    assert facts.trouble == ""
    assert facts.cloudpickle_version == "3.1.1"
    assert [(one.name, one.bytes) for one in facts.by_value] == [("envs", 812)]
    assert [(one.module, one.source) for one in facts.by_reference] == [("numpy", "numpy"), ("secret", "")]
    assert facts.source == "class Env: ..."
    assert facts.other == ('environment = "envs.Env"', "more = a list of 3")


def test_facts_about_another_artifact_say_so(tmp_path: Path) -> None:
    assert "another artifact" in written(tmp_path, {"format": 1, "digest": "cd" * 32}).trouble
    assert "does not say" in written(tmp_path, {"format": 1}).trouble
    assert "format 2" in written(tmp_path, {"format": 2, "digest": DIGEST}).trouble


@pytest.mark.parametrize(
    ("content", "trouble"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"{", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"1" * 5_000, "not JSON"),
        ([], "not a JSON object"),
        (None, "not a JSON object"),
        (b" " * (MAX_FACTS_BYTES + 1), "larger than"),
    ],
    ids=lambda value: repr(value)[:12],
)
def test_what_is_no_such_file_is_told(tmp_path: Path, content: object, trouble: str) -> None:
    assert trouble in written(tmp_path, content).trouble


@pytest.mark.parametrize("value", [None, 1, 1e999, True, "text", [], [1, None, [[]]], {}, {"name": []}, [{"name": {}}]])
def test_values_of_any_shape_are_left_aside(tmp_path: Path, value: object) -> None:
    names = ("digest", "cloudpickle_version", "by_value", "by_reference", "source", "findings")
    facts = written(tmp_path, {"format": 1, **dict.fromkeys(names, value)})
    json.dumps(facts.as_json())
    for text in (facts.digest, facts.cloudpickle_version, *facts.other):
        assert len(text) <= 300


def test_there_is_only_so_much_of_them(tmp_path: Path) -> None:
    many = [{"name": "n" * 5_000, "bytes": 10**100}] * 1_000
    facts = written(tmp_path, {"format": 1, "digest": DIGEST, "by_value": many, **{f"k{i}": i for i in range(5_000)}})
    assert len(facts.by_value) == len(facts.other) == MAX_LISTED
    assert all(len(one.name) <= 200 and one.bytes == 0 for one in facts.by_value)


def test_what_is_no_regular_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "env-facts.json")
    facts = read_facts(tmp_path, DIGEST)
    assert facts is not None
    assert facts.trouble == "it is not a regular file"
