"""Attacks in every place for text, in a real browser: nothing runs, nothing is loaded, nothing becomes markup."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.report_page.browser import BrowserError, Tab
from tests.report_page.reports import report, with_text
from tests.report_page.test_page_injection import ATTACKS

Open = Callable[..., Tab]

STRANGERS = "img, script, style, iframe, object, embed, base, form, link, meta, a, svg"
"""Elements that attacks would make, and that the page itself has in fixed numbers."""

EVERYTHING = f"""(async () => {{
    const settled = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done, 20)));
    for (const details of document.querySelectorAll('details')) details.open = true;
    document.querySelectorAll('.tabs button')[1].click();
    await settled();
    document.querySelectorAll('.tabs button')[0].click();
    for (const row of [...document.querySelectorAll('.rollout-list .grid-body .grid-row')]) {{
        row.click();
        await settled();
        for (const details of document.querySelectorAll('details')) details.open = true;
    }}
    document.querySelector('.filters input[type=checkbox]').click();
    await settled();
    return [document.querySelectorAll('{STRANGERS}').length, document.querySelectorAll('.message').length];
}})()"""


def seen(tab: Tab) -> tuple[int, int]:
    """Open everything that can be opened; return how many elements of the dangerous kinds, and messages, there are."""
    strangers, messages = tab.evaluate(EVERYTHING)
    return strangers, messages


@pytest.fixture
def harmless(opened: Open) -> tuple[int, int]:
    """The same of a page without any attack in it."""
    return seen(opened(with_text(report(), lambda text: f"{text}-plain")))


def test_no_attack_does_anything(opened: Open, harmless: tuple[int, int]) -> None:
    for attack in ATTACKS:
        tab = opened(with_text(report(), lambda text, attack=attack: f"{text}{attack}"))  # type: ignore[misc]
        assert seen(tab) == harmless, attack
        assert tab.events("Page.javascriptDialogOpening") == []
        assert tab.events("Runtime.exceptionThrown") == []
        # a refusal by the policy would be told here: there was nothing to refuse
        assert [entry["entry"]["text"] for entry in tab.events("Log.entryAdded")] == []
        assert [url for url in tab.requests() if not url.startswith("file:///tmp/")] == []


def test_what_hides_or_reorders_text_is_shown_as_escapes(opened: Open) -> None:
    tab = opened(with_text(report(), lambda text: f"{text}\u202e\u0000end"))
    seen(tab)
    assert tab.evaluate("/[\\u202e\\u0000]/.test(document.body.innerText)") is False
    assert "\\u202e" in tab.evaluate("document.querySelector('.detail-body').innerText")


ATTEMPTS = (
    "document.body.append(Object.assign(document.createElement('img'), {src: 'https://elsewhere.example/'}))",
    "document.body.append(Object.assign(document.createElement('iframe'), {src: 'data:text/html,x'}))",
    "document.body.append(Object.assign(document.createElement('link'), {rel: 'stylesheet', href: 'data:,'}))",
    "fetch('https://elsewhere.example/')",
)


def test_even_a_script_that_got_in_could_load_and_send_nothing(opened: Open) -> None:
    tab = opened(report())
    told = "(event) => { window.refused = event.violatedDirective; }"
    tab.evaluate(f"document.addEventListener('securitypolicyviolation', {told})")
    for attempt in ATTEMPTS:
        tab.evaluate("void (window.refused = '')")
        tab.evaluate(f"void ({attempt})")
        tab.wait("window.refused")


SINKS = (
    "document.body.innerHTML = '<b>x</b>'",
    "document.body.setAttribute('onclick', 'x')",
    "document.write('x')",
    "new DOMParser().parseFromString('x', 'text/html')",
)


def test_text_cannot_be_made_markup_at_all(opened: Open) -> None:
    tab = opened(report())
    for sink in SINKS:
        with pytest.raises(BrowserError, match=r"Trusted(HTML|Script)"):
            tab.evaluate(sink)
