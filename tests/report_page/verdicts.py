"""Verdicts to make pages of: with everything there is, of bundles that never ran, and of an older release."""

from __future__ import annotations

from typing import Any

import msgspec

from benchmax.bundle.findings.finding import Finding
from runner.report import GroupFacts
from runner.validation import CheckFacts, Verdict
from runner.validation.codes import CHECKS
from tests.report_page.reports import BAD, GOOD, report

FINDINGS = [
    Finding(
        severity="error",
        code="not-scored",
        what="0-aaaa-1",
        message="it ended as rollout_timeout, which is not scored",
        fix="Mend what ends it so, or name the reason among scorable_termination_reasons.",
    ),
    Finding(
        severity="warning",
        code="single-call",
        what="every rollout",
        message="no rollout asked the model more than once",
        fix="Give a model that goes on: --model mock:SCRIPT.",
    ),
]


def verdict(**changes: Any) -> Verdict:
    """Return an invalid verdict that has something of everything, or other facts."""
    kept = report(replay=None, close_error="", timings={"rollouts_s": 10.0})
    fields: dict[str, Any] = {
        "format": 1,
        "judgement": "invalid",
        "bundle": kept.bundle,
        "venv": kept.venv,
        "sandbox": kept.sandbox,
        "model": kept.model,
        "dataset": kept.dataset,
        "findings": FINDINGS,
        "checks": checks(siblings="failed", replay="skipped"),
        "siblings": kept.groups[0].outcomes,
        "report": kept,
        "rollouts": 6,
        "benchmax": "0.2.6",
        "seconds": 12.5,
        **changes,
    }
    return Verdict(**fields)


def valid() -> Verdict:
    """Return a verdict without findings."""
    well = [msgspec.structs.replace(GOOD, rollout_id=f"0-aaaa-{number}", findings=[]) for number in range(2)]
    kept = report(
        GroupFacts(position=0, example_id="aaaa", outcomes=well, rollouts=2),
        replay=None,
        close_error="",
        timings={"rollouts_s": 4.0},
        worker_deaths=[],
    )
    return verdict(judgement="valid", findings=[], checks=checks(), siblings=well, report=kept, rollouts=14)


def never_ran() -> Verdict:
    """Return the verdict on an artifact of which nothing could be read."""
    broken = Finding(
        severity="error",
        code="artifact",
        what="its files",
        message="env-metadata.json is no JSON",
        fix="Bundle the environment again.",
    )
    made = [
        CheckFacts(name=name, state="failed" if name == "artifact" else "skipped", why="its files cannot be read")
        for name in CHECKS
    ]
    return Verdict(format=1, judgement="invalid", findings=[broken], checks=made, benchmax="0.2.6", seconds=0.01)


def unjudged() -> Verdict:
    """Return a verdict that could not be had, since nobody answered for the judge."""
    why = "nothing is bound to 'judge': bind it with --auth judge=env:VAR@URL"
    made = [
        msgspec.structs.replace(one, why=why) if one.state == "skipped" else one
        for one in checks(siblings="skipped", replay="skipped")
    ]
    return verdict(judgement="unjudged", findings=[], checks=made, siblings=[BAD], report=None, rollouts=8)


def checks(**states: Any) -> list[CheckFacts]:
    """Return every check as passed, or in the states that are given by name."""
    return [
        CheckFacts(
            name=name,
            state=states.get(name, "passed"),
            why="it was not repeated-why" if states.get(name) == "skipped" else "",
            seconds=0.0 if states.get(name) == "skipped" else 0.25,
        )
        for name in CHECKS
    ]
