"""Text of a bundle, wherever a report or a verdict has any, is text in the page and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.report import OutcomeFacts, Report
from runner.report.page import page, validation_page
from runner.text import one_line, printable
from runner.validation import Verdict
from tests.report_page.reading import read
from tests.report_page.reports import report, texts, with_text
from tests.report_page.verdicts import never_ran, verdict

ATTACKS = (
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "</style><img src=x onerror=alert(1)>",
    "</title></head><body onload=alert(1)>",
    "</noscript><svg/onload=alert(1)>",
    '"><img src=x onerror=alert(1)>',
    "' autofocus onfocus=alert(1) x='",
    "<!--<script>",
    "]]>",
    "&lt;b&gt;&#60;i&#62;",
    "javascript:alert(1)",
    "\u2028\u2029<\u2028",
    "\x00<\x00script>",
    "\u202e<txt.exe",
    "\\u003cscript\\u003e",
    "${alert(1)}{{alert(1)}}",
)
VIEWS: dict[str, tuple[Report | Verdict, Callable[[Any], bytes]]] = {
    "a run": (report(), page),
    "a validation": (verdict(), validation_page),
    "a validation in which nothing ran": (never_ran(), validation_page),
}
PLAIN = {name: read(view(with_text(shown, lambda text: f"{text}-plain"))) for name, (shown, view) in VIEWS.items()}


DECODER = msgspec.json.Decoder(list[OutcomeFacts])
SPOKEN = {"error", "warning"}
"""Severities, for which the page has words of its own."""


def check(name: str, addition: str) -> None:
    original, view = VIEWS[name]
    plain = PLAIN[name]
    changed = with_text(original, lambda text: text + addition)
    found = read(view(changed))
    assert found.shape == plain.shape
    assert found.scripts() == plain.scripts()
    assert found.styles() == plain.styles()
    assert found.policy() == plain.policy()
    links = {"href", "src", "id", "class", "role", "type"}
    assert [one for one in found.attributes if one[0] in links] == [one for one in plain.attributes if one[0] in links]
    outcomes = [outcome for chunk in found.packed() for outcome in DECODER.decode(chunk)]
    run = changed if isinstance(changed, Report) else changed.report
    assert outcomes == ([] if run is None else run.outcomes)
    said = set(texts(json.loads(msgspec.json.encode(outcomes))))
    for text in all_texts(changed):
        assert text in said or printable(text) in found.text or one_line(text) in found.text or text in SPOKEN


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_in_every_place_for_text_changes_nothing_of_the_page(attack: str, name: str) -> None:
    check(name, attack)


@settings(max_examples=40, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40), st.sampled_from([*VIEWS]))
def test_any_text_in_every_place_for_text_changes_nothing_of_the_page(text: str, name: str) -> None:
    check(name, text)


@pytest.mark.parametrize("name", VIEWS)
def test_every_text_of_a_report_or_a_verdict_can_be_read_in_its_page(name: str) -> None:
    check(name, "-plain")


def all_texts(original: Report | Verdict) -> list[str]:
    """Every text of a report or a verdict that is not the name of a field."""
    collected: list[str] = []

    def keep(text: str) -> str:
        collected.append(text)
        return text

    with_text(original, keep)
    return collected
