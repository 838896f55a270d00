"""The page judged by axe, a tool for accessibility, in the states in which people have it before them."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import resources
from importlib.util import find_spec

import pytest

from runner.report import Report
from runner.validation import Verdict
from tests.conftest import require
from tests.report_page.browser import Tab
from tests.report_page.reports import many, report
from tests.report_page.verdicts import never_ran, unjudged, valid, verdict

Open = Callable[..., Tab]


@pytest.fixture(scope="session")
def axe() -> str:
    """The tool's script."""
    package = "axe_playwright_python"
    require(find_spec(package), "axe (axe-playwright-python)")
    return (resources.files(package) / "axe.min.js").read_text("utf-8")


def violations(tab: Tab, axe: str) -> list[str]:
    """Return what axe finds, with the elements in question."""
    tab.evaluate(f"{axe}; 0")
    found = json.loads(
        tab.evaluate("axe.run({resultTypes: ['violations']}).then((found) => JSON.stringify(found.violations))")
    )
    return [f"{one['id']}: {one['help']}: {[node['html'][:200] for node in one['nodes'][:3]]}" for one in found]


@pytest.mark.parametrize(("dark", "width"), [(False, 1600), (True, 360)], ids=["light and wide", "dark and narrow"])
def test_axe_finds_nothing(opened: Open, axe: str, dark: bool, width: int) -> None:
    tab = opened(report())
    tab.size(width)
    tab.prefer(dark=dark)
    assert violations(tab, axe) == []
    tab.evaluate("document.querySelectorAll('.rollout-list .grid-body .grid-row')[1].click()")
    tab.wait("document.querySelector('.transcript')")
    tab.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert violations(tab, axe) == []
    tab.press("Escape")
    tab.evaluate("document.querySelectorAll('.tabs button')[1].click()")
    tab.press("?")
    assert violations(tab, axe) == []


@pytest.mark.parametrize("made", [many(300), report(many(1).groups[0])], ids=["many", "one example"])
def test_axe_finds_nothing_whatever_the_size(opened: Open, axe: str, made: Report) -> None:
    assert violations(opened(made), axe) == []


@pytest.mark.parametrize(("dark", "width"), [(False, 1600), (True, 360)], ids=["light and wide", "dark and narrow"])
@pytest.mark.parametrize("made", [verdict(), valid(), unjudged(), never_ran()], ids=lambda made: made.judgement)
def test_axe_finds_nothing_on_the_page_of_a_verdict(
    opened: Open, axe: str, made: Verdict, dark: bool, width: int
) -> None:
    tab = opened(made)
    tab.size(width)
    tab.prefer(dark=dark)
    tab.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert violations(tab, axe) == []
    tab.press("?")
    assert violations(tab, axe) == []


def test_axe_sees_what_is_wrong(opened: Open, axe: str) -> None:
    tab = opened(report())
    tab.evaluate("document.documentElement.removeAttribute('lang')")
    tab.evaluate("document.querySelector('h1').style.color = '#ddd'")
    assert {found.partition(":")[0] for found in violations(tab, axe)} == {"html-has-lang", "color-contrast"}
