"""Comparing two runs: every kind of difference is found, and what differs between any two runs is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from runner.errors import UsageError
from runner.recording.difference import KINDS, MAX_LISTED, Comparison, Side, compare
from runner.report.model_calls import FindingFacts
from runner.report.value import ModelFacts, OutcomeFacts, Report
from tests.unit.recording_lab import report_of


def outcome(name: str = "0-e-0", **fields: Any) -> OutcomeFacts:
    given = {"rewards": {"x": 1.0}, "termination_reason": "finished", "error": None, "transcript": [{"role": "user"}]}
    return OutcomeFacts(rollout_id=name, **{**given, **fields})


def compared(tmp_path: Path, first: Report, second: Report) -> Comparison:
    sides = []
    for name, side in (("a.json", first), ("b.json", second)):
        (tmp_path / name).write_bytes(side.to_json())
        sides.append(Side.read(tmp_path / name))
    return compare(*sides)


def changed(value: Any, **fields: Any) -> Any:
    return msgspec.structs.replace(value, **fields)


BASE = report_of(outcome())


@pytest.mark.parametrize(
    ("other", "kind", "where", "path", "values"),
    [
        (report_of(outcome(termination_reason="lost")), "outcomes", "0-e-0", "reason", ('"finished"', '"lost"')),
        (report_of(outcome(error="no")), "outcomes", "0-e-0", "error", ("null", '"no"')),
        (report_of(outcome(origin="runner")), "outcomes", "0-e-0", "origin", ('"environment"', '"runner"')),
        (report_of(outcome(rewards={"x": 1.0000000001})), "rewards", "0-e-0", "x", ("1.0", "1.0000000001")),
        (report_of(outcome(rewards={})), "rewards", "0-e-0", "x", ("1.0", "nothing")),
        (
            report_of(outcome(transcript=[{"role": "user"}, {"role": "assistant"}])),
            "transcripts",
            "0-e-0",
            "[1]",
            ("nothing", "an object of 1 members"),
        ),
        (report_of(outcome("0-e-0", transcript=None)), "transcripts", "0-e-0", "", ("an array of 1 items", "null")),
        (
            changed(BASE, venv=changed(BASE.venv, packages={"httpx": "2"})),
            "packages",
            "httpx",
            "",
            ('"1"', '"2"'),
        ),
        (changed(BASE, venv=changed(BASE.venv, packages={})), "packages", "httpx", "", ('"1"', "nothing")),
        (
            changed(BASE, bundle=changed(BASE.bundle, digest="other")),
            "settings",
            "artifact",
            "",
            ('"d"', '"other"'),
        ),
        (changed(BASE, model=changed(BASE.model, name="m")), "settings", "model", "", ('"mock"', '"m"')),
        (changed(BASE, sandbox=changed(BASE.sandbox, network="none")), "settings", "network", "", ('"open"', '"none"')),
    ],
)
def test_a_difference_is_found_with_its_place_and_both_values(
    tmp_path: Path, other: Report, kind: str, where: str, path: str, values: tuple[str, str]
) -> None:
    found = compared(tmp_path, BASE, other)
    assert not found.equal
    (difference,) = found.differences
    assert (difference.kind, difference.where, difference.path) == (kind, where, path)
    assert (difference.first, difference.second) == values
    assert found.counts == {name: int(name == kind) for name in KINDS}


def test_a_rollout_that_only_one_has_is_a_difference(tmp_path: Path) -> None:
    found = compared(tmp_path, BASE, report_of(outcome(), outcome("0-e-1")))
    assert [(difference.kind, difference.where) for difference in found.differences] == [
        ("settings", "rollouts"),
        ("outcomes", "0-e-1"),
    ]
    assert found.rollouts == 1


def test_what_differs_between_any_two_runs_is_no_difference(tmp_path: Path) -> None:
    other = changed(
        report_of(outcome(seconds=9.0, cause="c", logs=[])),
        timings={"total_s": 9.0},
        venv=changed(BASE.venv, path="/elsewhere", key="another"),
        dataset=changed(BASE.dataset, path="/elsewhere"),
        model=changed(BASE.model, base_url="http://127.0.0.1:2/v1"),
    )
    assert compared(tmp_path, BASE, other).equal


def test_what_is_no_conversation_has_no_transcript_to_compare(tmp_path: Path) -> None:
    several = [FindingFacts(code="overlapping_generations", severity="error", message="m")]
    other = report_of(outcome(transcript=[{"role": "assistant"}], findings=several))
    assert compared(tmp_path, BASE, other).equal
    assert not compared(tmp_path, BASE, report_of(outcome(transcript=[{"role": "assistant"}]))).equal


def test_the_address_of_somebody_elses_server_is_a_setting(tmp_path: Path) -> None:
    first, second = (
        changed(BASE, model=ModelFacts(kind="endpoint", name="m", base_url=f"https://{host}.example/v1"))
        for host in ("a", "b")
    )
    assert [difference.where for difference in compared(tmp_path, first, second).differences] == ["base URL"]


def test_of_many_differences_some_are_listed_and_all_are_counted(tmp_path: Path) -> None:
    names = [f"0-e-{number}" for number in range(3 * MAX_LISTED)]
    found = compared(
        tmp_path, report_of(*map(outcome, names)), report_of(*(outcome(name, rewards={"x": 2.0}) for name in names))
    )
    assert found.counts["rewards"] == 3 * MAX_LISTED
    assert [difference.where for difference in found.differences] == names[:MAX_LISTED]


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"format": 1}', "\0", "[" * 100_000])
def test_what_is_no_report_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(UsageError, match=r"x\.json is no report"):
        Side.read(tmp_path / "x.json")


def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file or folder"):
        Side.read(tmp_path / "x")
    with pytest.raises(UsageError, match="is no record"):
        Side.read(tmp_path)
