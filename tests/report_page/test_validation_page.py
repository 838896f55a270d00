"""The page of a verdict as a file: what is in it, in which order, and of which verdicts it can be made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmax.bundle.findings.finding import Finding
from runner.report import OutcomeFacts, Report
from runner.report.page import page, validation_page
from runner.report.page.validation import MAX_FINDINGS
from runner.validation import CheckFacts, Verdict
from runner.validation.codes import CHECKS
from tests.report_page.reading import Found, read
from tests.report_page.verdicts import FINDINGS, checks, never_ran, unjudged, valid, verdict

OLD = Path(__file__).parents[1] / "fixtures" / "verdicts" / "format-1-siblings-alone.json"
"""What a release wrote that kept two siblings and nothing else of the first pass."""

EVERY = pytest.mark.parametrize("made", [verdict(), valid(), unjudged(), never_ran()], ids=lambda made: made.judgement)


def in_order(text: str, *parts: str) -> bool:
    places = [text.index(part) for part in parts]
    return places == sorted(places)


def links(found: Found) -> list[str]:
    return [value for name, value in found.attributes if name == "href" and value.startswith("#")]


def outcomes(found: Found) -> list[OutcomeFacts]:
    decoder = msgspec.json.Decoder(list[OutcomeFacts])
    return [outcome for chunk in found.packed() for outcome in decoder.decode(chunk)]


def test_verdict_findings_and_checks_come_first_and_need_no_script() -> None:
    text = read(validation_page(verdict(checks=checks(siblings="failed")))).text
    text = text[text.index("Verdict") :]
    assert in_order(
        text,
        "Invalid",
        "1 error, 1 warning.",
        "not-scored",
        "it ended as rollout_timeout, which is not scored.",
        "Mend what ends it so",
        "single-call",
        "Checks, in their order",
        *CHECKS.values(),
        "What follows is about the first pass: 6 rollouts, 1 ended well.",
        "Reward components",
        "Termination reasons",
    )


def test_the_rollouts_of_the_first_pass_are_there_as_on_the_page_of_a_run() -> None:
    made = verdict()
    assert made.report is not None
    found, run = read(validation_page(made)), read(page(made.report))
    assert outcomes(found) == made.report.outcomes
    assert found.table() == run.table()
    assert found.scripts() == run.scripts()
    assert found.policy() == run.policy()
    for part in ("hello from the constructor", "seccomp filter", "Header requests", "sympy", "Traceback: line 3"):
        assert part in found.text


def test_a_finding_about_a_rollout_leads_to_it() -> None:
    found = read(validation_page(verdict(report=None, siblings=verdict().siblings)))
    places = [value for name, value in found.attributes if name == "data-rollout"]
    assert places[0] == "1"
    assert found.table()["rollouts"]["id"][1] == FINDINGS[0].what


@EVERY
def test_every_link_leads_to_a_part_that_is_there(made: Verdict) -> None:
    found = read(validation_page(made))
    ids = [value for name, value in found.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    assert {link.removeprefix("#") for link in links(found)} <= set(ids)


@EVERY
def test_equal_verdicts_give_equal_pages_also_when_read_back(made: Verdict) -> None:
    assert validation_page(made) == validation_page(Verdict.from_json(made.to_json()))


def test_a_bundle_that_never_ran_has_a_page_of_what_was_found() -> None:
    found = read(validation_page(never_ran()))
    assert in_order(
        found.text, "env-metadata.json is no JSON.", "Bundle the environment again.", "Checks, in their order"
    )
    assert "did not get that far" in found.text
    assert "Rollouts" not in found.text
    assert found.packed() == []
    assert not [value for name, value in found.attributes if name == "id" and value in ("table", "lists", "pass")]


def test_a_verdict_that_could_not_be_had_says_why_first() -> None:
    text = read(validation_page(unjudged())).text
    text = text[text.index("Verdict") :]
    assert in_order(text, "Not judged", "There is no verdict: nothing is bound to 'judge'", "Findings")


def test_a_verdict_of_a_release_that_kept_two_siblings_alone_has_a_page_of_these() -> None:
    old = Verdict.from_json(OLD.read_bytes())
    assert (old.judgement, old.report) == ("invalid", None)
    found = read(validation_page(old))
    assert outcomes(found) == old.siblings
    assert len(old.siblings) == 2
    assert "Of the first pass this verdict has the first two siblings only." in found.text
    assert "Header audit" not in found.text


@pytest.mark.parametrize("missing", ["bundle", "venv", "sandbox", "model", "dataset"])
def test_a_verdict_can_be_shown_whatever_it_did_not_get_to(missing: str) -> None:
    changes: dict[str, Any] = {missing: None, "report": None}
    assert b"Invalid" in validation_page(verdict(**changes))


def test_any_number_of_findings_and_any_length_of_text_leave_a_page_that_can_be_read() -> None:
    many = [
        Finding(severity="error", code="secret-captured", what=f"{n}", message="m" * 5000, fix="f" * 5000)
        for n in range(1000)
    ]
    long = [CheckFacts(name="load", state="skipped", why="w" * 100_000)] * 1000
    found = read(validation_page(verdict(findings=many, checks=long)))
    assert "1,000 errors, 0 warnings." in found.text
    assert f"{1000 - MAX_FINDINGS} more findings in the JSON." in found.text
    assert len(found.text) < 1_000_000


def test_the_first_pass_as_it_was_kept_goes_before_the_siblings() -> None:
    made = verdict()
    assert made.first_pass is made.report
    alone = verdict(report=None).first_pass
    assert isinstance(alone, Report)
    assert alone.outcomes == made.siblings
    assert never_ran().first_pass is None
