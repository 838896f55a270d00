"""The page of a verdict as a person uses it, in a real browser."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from runner.validation import Verdict
from tests.report_page.browser import Tab
from tests.report_page.reports import with_text
from tests.report_page.test_page_attacked import seen
from tests.report_page.test_page_injection import ATTACKS
from tests.report_page.verdicts import FINDINGS, never_ran, unjudged, valid, verdict

Open = Callable[..., Tab]


def troubles(tab: Tab) -> list[object]:
    """What went wrong, was refused, or was loaded from elsewhere since the page was opened."""
    # a picture of a transcript lies in the page itself
    loaded = [url for url in tab.requests() if not url.startswith(("file:///tmp/", "data:image/"))]
    return [*tab.events("Runtime.exceptionThrown"), *tab.events("Log.entryAdded"), *loaded]


def test_a_finding_about_a_rollout_opens_it(opened: Open) -> None:
    tab = opened(verdict())
    assert tab.evaluate("document.querySelector('#findings [data-rollout] button').textContent") == (
        f"Show rollout {FINDINGS[0].what}"
    )
    tab.evaluate("document.querySelector('#findings [data-rollout] button').click()")
    tab.wait("document.querySelector('.detail .transcript')")
    assert tab.evaluate("document.querySelector('.detail-title').textContent") == FINDINGS[0].what
    assert troubles(tab) == []


def test_where_nothing_ran_the_page_does_what_is_left_to_do(opened: Open) -> None:
    tab = opened(never_ran())
    for key in ("j", "k", "/", "Escape"):
        tab.press(key)
    tab.press("t")
    assert tab.evaluate("document.documentElement.dataset.theme") == "light"
    tab.press("?")
    keys = tab.evaluate("[...document.querySelectorAll('dialog kbd')].map((key) => key.textContent)")
    assert keys == ["t", "?"]
    assert tab.pdf().startswith(b"%PDF")
    assert troubles(tab) == []


@pytest.mark.parametrize("width", [360, 1000, 1600])
@pytest.mark.parametrize("made", [verdict(), valid(), unjudged(), never_ran()], ids=lambda made: made.judgement)
def test_the_page_fits_into_windows_of_any_width(opened: Open, made: Verdict, width: int) -> None:
    tab = opened(made)
    tab.size(width)
    assert tab.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def test_the_list_is_as_high_as_its_rollouts_whatever_is_looked_for(opened: Open) -> None:
    tab = opened(verdict())
    height = "document.querySelector('.rollout-list').offsetHeight"
    before = tab.evaluate(height)
    assert before < 200
    tab.evaluate("document.querySelector('.filters input').value = 'no such rollout'")
    tab.evaluate("document.querySelector('.filters input').dispatchEvent(new Event('input'))")
    tab.wait("!document.querySelector('.side .empty').hidden")
    assert tab.evaluate(height) == before


@pytest.mark.parametrize("attack", ["".join(ATTACKS), "".join(reversed(ATTACKS))], ids=["all", "backwards"])
def test_no_attack_does_anything_in_the_page_of_a_verdict(opened: Open, attack: str) -> None:
    harmless = seen(opened(with_text(verdict(), lambda text: f"{text}-plain")))
    tab = opened(with_text(verdict(), lambda text: f"{text}{attack}"))
    assert seen(tab) == harmless
    assert tab.events("Page.javascriptDialogOpening") == []
    assert troubles(tab) == []
