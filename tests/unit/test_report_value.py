"""The report as a value: what counts as good, and JSON that any reader takes."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from benchmax.envs import RolloutOutcome
from runner.record import LogLine, RolloutRecord
from runner.report import (
    BundleFacts,
    DatasetFacts,
    GroupFacts,
    HeaderFacts,
    ModelFacts,
    OutcomeFacts,
    Report,
    SandboxFacts,
    VenvFacts,
    outcome_facts,
)

SCORABLE = ("finished",)


def record(outcome: RolloutOutcome, *, origin: str = "environment", logs: tuple[LogLine, ...] = ()) -> RolloutRecord:
    return RolloutRecord(rollout_id="r", example_id="e", outcome=outcome, origin=origin, logs=logs)  # type: ignore[arg-type]


def report(*groups: GroupFacts, **more: object) -> Report:
    fields: dict[str, object] = {
        "format": 1,
        "bundle": BundleFacts(digest="d", python_version="3.11", benchmax_version="0.2.6", pip_dependencies=[]),
        "venv": VenvFacts(key="k", path="/v", python="/p", packages={}, installer="uv 1"),
        "sandbox": SandboxFacts(level="off", network="open", mechanisms=[], uid=0, hash_seed="0"),
        "model": ModelFacts(kind="mock", name="mock", base_url="http://127.0.0.1:1/v1"),
        "dataset": DatasetFacts(split="eval", path="/d", examples=len(groups)),
        "groups": list(groups),
        "headers": HeaderFacts(),
        "timings": {"rollouts_s": 1.0},
        **more,
    }
    return Report(**fields)  # type: ignore[arg-type]


def group(position: int, *outcomes: OutcomeFacts, rollouts: int = 1, error: str | None = None) -> GroupFacts:
    return GroupFacts(
        position=position, example_id=f"e{position}", outcomes=[*outcomes], rollouts=rollouts, error=error
    )


GOOD = OutcomeFacts(rollout_id="r", rewards={"score": 1.0}, termination_reason="finished", error=None, ok=True)
BAD = OutcomeFacts(rollout_id="r", rewards={}, termination_reason="lost", error="why", cause="why")


@pytest.mark.parametrize(
    ("origin", "reason", "error", "ok"),
    [
        ("environment", "finished", None, True),
        ("environment", "finished", "but", False),
        ("environment", "gave_up", None, False),
        ("runner", "finished", None, False),
    ],
)
def test_a_rollout_ended_well_in_a_scorable_reason_of_its_own_without_an_error(
    origin: str, reason: str, error: str | None, ok: bool
) -> None:
    facts = outcome_facts(record(RolloutOutcome({}, reason, error), origin=origin), SCORABLE)
    assert facts.ok is ok


def test_the_cause_is_the_error_or_else_the_last_warning() -> None:
    warning = LogLine(stream="log", level=30, logger="l", text="rate limit")
    printed = LogLine(stream="stdout", level=0, logger="", text="printed")
    by_log = record(RolloutOutcome({}, "model_error", None), logs=(warning, printed))
    assert outcome_facts(by_log, SCORABLE).cause == "rate limit"
    by_error = record(RolloutOutcome({}, "model_error", "it said so"), logs=(warning,))
    assert outcome_facts(by_error, SCORABLE).cause == "it said so"


def test_integers_of_any_size_become_numbers_that_json_readers_take() -> None:
    facts = outcome_facts(record(RolloutOutcome({"big": 10**30}, "finished")), SCORABLE)
    data = report(group(0, facts)).to_json()
    assert json.loads(data)["groups"][0]["outcomes"][0]["rewards"] == {"big": 1e30}


def test_a_report_is_good_only_if_everything_is() -> None:
    assert report(group(0, GOOD)).good
    assert not report(group(0, GOOD), group(1, BAD)).good
    assert not report(group(0, GOOD, rollouts=2)).good
    assert not report(group(0, GOOD), close_error="raised").good
    assert not report(group(0, GOOD), interrupted=True).good


def test_counts_and_means() -> None:
    found = report(group(0, GOOD, BAD, rollouts=3), group(1, rollouts=3, error="raised"))
    assert (found.expected, found.ok, found.failed, found.missing) == (6, 1, 1, 4)
    assert found.reasons() == {"finished": 1, "lost": 1}
    assert found.components() == {"score": (1.0, 1)}


def test_json_reads_back_and_unknown_fields_are_ignored() -> None:
    original = report(group(0, GOOD))
    data = original.to_json()
    assert Report.from_json(data) == original
    newer = json.loads(data) | {"added_later": [1]}
    assert Report.from_json(json.dumps(newer).encode()) == original
    with pytest.raises(ValueError):
        Report.from_json(b"{}")


def test_the_json_holds_nothing_that_a_terminal_obeys() -> None:
    outcome = outcome_facts(record(RolloutOutcome({"\x9b2J": 1.0}, "finished", "\x1b[2J\u202e")), SCORABLE)
    data = report(group(0, outcome)).to_json()
    assert not {*"\x1b\x9b\u202e"} & {*data.decode()}
    assert json.loads(data)["groups"][0]["outcomes"][0]["error"] == "\x1b[2J\u202e"


def test_without_its_output_an_outcome_counts_what_it_had() -> None:
    lines = (LogLine(stream="log", level=30, logger="l", text="x"),) * 3
    said = record(RolloutOutcome({"x": 1.0}, "finished"), logs=lines)
    said = replace(said, dropped_logs=2, transcript=["é" * 10], transcript_omitted_bytes=5)
    whole = outcome_facts(said, SCORABLE)
    bare = whole.without_output()
    assert (bare.logs, bare.dropped_logs, bare.transcript, bare.transcript_omitted_bytes) == ([], 5, [], 29)
    assert (bare.rewards, bare.ok) == (whole.rewards, whole.ok)
    nothing = outcome_facts(record(RolloutOutcome({}, "finished")), SCORABLE)
    assert nothing.without_output() == nothing
