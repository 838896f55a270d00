"""Findings and checks as they are taken down, and what they come to."""

from __future__ import annotations

import pytest

from runner.validation.codes import CHECKS, ESSENTIAL
from runner.validation.ledger import MAX_OF_A_KIND, Ledger


def test_of_a_kind_and_place_there_is_one_finding() -> None:
    ledger = Ledger()
    for place in ("a", "b", "a"):
        ledger.add("dataset-raises", place, "it raised.", "Mend it.")
    assert [found.what for found in ledger.findings] == ["a", "b"]
    assert ledger.findings[0].message == "it raised"


def test_there_is_an_end_to_findings_of_one_kind() -> None:
    ledger = Ledger()
    for number in range(100):
        ledger.add("secret-captured", str(number), "it is a key", "Take it out.")
    assert len(ledger.findings) == MAX_OF_A_KIND


def test_texts_are_one_line_and_bounded() -> None:
    ledger = Ledger()
    ledger.add("dataset-raises", "a\nb", "\x1b[31m" + "x" * 5000, "y")
    (found,) = ledger.findings
    assert found.what == "a b"
    assert "\x1b" not in found.message
    assert len(found.message) <= 1000


def test_errors_come_first_then_the_order_of_the_checks() -> None:
    ledger = Ledger()
    for code in ("constant-reward", "interference", "dataset-unbounded", "secret-captured"):
        ledger.add(code, "x", "m", "f")
    assert [found.code for found in ledger.findings] == [
        "secret-captured",
        "interference",
        "dataset-unbounded",
        "constant-reward",
    ]


def test_a_check_fails_by_an_error_and_not_by_a_warning() -> None:
    ledger = Ledger()
    with ledger.checking("dataset"):
        ledger.add("dataset-unbounded", "x", "m", "f")
    with ledger.checking("load"):
        ledger.add("does-not-load", "x", "m", "f")
    assert [(check.name, check.state) for check in ledger.checks] == [("load", "failed"), ("dataset", "passed")]


def test_a_check_that_was_broken_off_is_not_made_unless_it_has_failed() -> None:
    ledger = Ledger()
    for check, code in (("load", ""), ("dataset", "dataset-empty")):
        with pytest.raises(KeyError), ledger.checking(check):
            if code:
                ledger.add(code, "x", "m", "f")
            raise KeyError
    ledger.skip_rest("it ended")
    states = {check.name: check.state for check in ledger.checks}
    assert (states["load"], states["dataset"]) == ("skipped", "failed")
    assert [*states] == [*CHECKS]


def test_the_verdict_needs_the_essential_checks() -> None:
    empty, whole, without, wrong = (Ledger() for _ in range(4))
    without.skip("siblings", "no judge")
    wrong.add("secret-captured", "x", "m", "f")
    for ledger in (whole, without, wrong):
        for check in ESSENTIAL:
            ledger.done(check)
        ledger.skip_rest("nothing more")
    judgements = [ledger.judgement for ledger in (empty, whole, without, wrong)]
    assert judgements == ["unjudged", "valid", "unjudged", "invalid"]
