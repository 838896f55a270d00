"""The report on a terminal or in a file: rows for few rollouts, groups for many, a few lines that sum it up."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from runner.report import EndpointFacts, HeaderFacts, OutcomeFacts, RefusalFacts, Report, SandboxFacts
from runner.report.table import MAX_COMPONENTS, MAX_LINES, MAX_ROWS, show
from tests.unit.test_report_value import BAD, GOOD, group, report


def shown(found: Report, width: int = 200, *, terminal: bool = False) -> str:
    file = io.StringIO()
    show(found, Console(file=file, width=width, force_terminal=terminal, markup=False, highlight=False, emoji=False))
    return file.getvalue()


def outcome(rollout_id: str, **rewards: float) -> OutcomeFacts:
    return OutcomeFacts(rollout_id=rollout_id, rewards=rewards, termination_reason="finished", error=None, ok=True)


def test_few_rollouts_have_a_row_each() -> None:
    lines = shown(report(group(0, outcome("0-e-0", score=0.5, other=1), outcome("0-e-1", score=1), rollouts=2))).split(
        "\n"
    )
    assert lines[0].split() == ["rollout", "ended", "score", "other", "s"]
    assert lines[1].split() == ["0-e-0", "finished", "0.5", "1"]
    assert lines[2].split() == ["0-e-1", "finished", "1", "–"]
    assert lines[3].startswith("2 ok · 0 failed · 0 missing of 2 rollouts")


def test_many_rollouts_have_a_row_per_group() -> None:
    groups = [group(i, outcome(f"{i}-e-0", score=i)) for i in range(MAX_ROWS + 2)]
    text = shown(report(*groups))
    assert "rollout  " not in text
    assert text.split("\n")[0].split() == ["example", "ok", "failed", "missing", "score"]
    assert "… 2 more examples, all in the JSON" in text


def test_without_an_outcome_there_is_no_empty_table() -> None:
    text = shown(report(group(0, rollouts=4, error="group '0-e-0' raised ValueError: no")))
    assert text.startswith("0 ok · 0 failed · 4 missing of 4 rollouts")
    assert "\ngroup '0-e-0' raised ValueError: no\n" in text


def test_what_goes_wrong_everywhere_is_said_a_few_times() -> None:
    text = shown(report(*(group(i, error="it raised") for i in range(20))))
    assert text.count("it raised") == MAX_LINES
    assert "group 4: it raised" in text
    assert f"… {20 - MAX_LINES} more groups, all in the JSON" in text


def test_more_components_than_fit_are_left_to_the_json() -> None:
    rewards = {f"component{i:02}": float(i) for i in range(40)}
    found = report(group(0, outcome("0-e-0", **rewards)))
    assert f"component{MAX_COMPONENTS - 1:02}" in shown(found).split("\n")[0]
    assert f"… {40 - MAX_COMPONENTS} more components" in shown(found)
    narrow = shown(found, width=80).split("\n")[0]
    assert narrow.split()[:3] == ["rollout", "ended", "component00"]
    assert len(narrow) <= 80


def test_the_cause_of_a_failure_is_beside_it_and_refusals_and_deaths_below() -> None:
    refusal = RefusalFacts(binding="judge", rollout_id="r", base_url="http://x", model="m", reason="add urls=")
    text = shown(
        report(
            group(0, BAD),
            headers=HeaderFacts(answered=1, refused=[refusal]),
            worker_deaths=["The worker ended by SIGKILL (-9)."],
            close_error="aclose raised",
        )
    )
    assert text.split("\n")[1].split() == ["r", "lost", "why"]
    assert "headers refused: 1; the first: add urls=" in text
    assert "worker: The worker ended by SIGKILL (-9)." in text
    assert "closing the environment: aclose raised" in text


def test_places_that_could_not_be_connected_to_are_named_and_others_are_not() -> None:
    places = [
        EndpointFacts(endpoint="api.example:443", connections=5),
        EndpointFacts(endpoint="db.example:5432", connections=1, failed=7, reason="Connection refused"),
    ]
    sandbox = SandboxFacts(
        level="namespaces", network="model-only", mechanisms=[], uid=0, hash_seed="0", endpoints=places
    )
    text = shown(report(group(0, GOOD), sandbox=sandbox))
    assert "cannot connect to db.example:5432: Connection refused (7 times)" in text
    assert "api.example" not in text


@pytest.mark.parametrize(("value", "cell"), [(0.0, "0.000"), (-0.12345, "-0.123"), (1e30, "1e+30")])
def test_means_are_short_whatever_their_size(value: float, cell: str) -> None:
    assert f"mean rewards: score {cell} (n=1)" in shown(report(group(0, outcome("0-e-0", score=value))))


def test_names_from_the_bundle_are_neither_markup_nor_escapes() -> None:
    hostile = OutcomeFacts(
        rollout_id="[red]\x1b[31m",
        rewards={":smile:\x07": 1.0},
        termination_reason="[bold]\r",
        error="\u202e",
        cause="\u202e[link=x]y",
    )
    text = shown(report(group(0, hostile, GOOD, rollouts=2)))
    assert r"[red]\x1b[31m" in text
    assert r":smile:\x07" in text
    assert r"[bold]\x0d" in text
    assert r"\u202e[link=x]y" in text
    assert all(c == "\n" or c.isprintable() for c in text)
