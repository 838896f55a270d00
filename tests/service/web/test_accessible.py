"""Pages judged by axe, light and dark, wide and narrow; and used from the keyboard alone."""

from __future__ import annotations

import pytest

from tests.report_page.browser import Tab
from tests.report_page.test_page_accessible import violations
from tests.report_page.verdicts import valid, verdict
from tests.service.http.servers import Tenant
from tests.service.web.person import Person
from tests.service.web.rows import failed, judged, many, rollout, running

LOOKS = [(False, 1400), (True, 1400), (False, 360), (True, 360)]


def looked_at(person: Person, axe: str) -> list[str]:
    """What axe finds on a page, whatever it looks like."""
    found = []
    # a report is judged by itself
    person.tab.evaluate("for (const one of document.querySelectorAll('iframe')) one.remove()")
    person.tab.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    for dark, width in LOOKS:
        person.tab.size(width)
        person.tab.prefer(dark=dark)
        found += [f"{'dark' if dark else 'light'} {width}: {one}" for one in violations(person.tab, axe)]
        assert person.tab.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    return found


@pytest.mark.timeout(120)
def test_axe_finds_nothing_on_any_page(person: Person, tenant: Tenant, axe: str) -> None:
    one, other = judged(tenant, verdict(), "calculator v1"), judged(tenant, valid(), "calculator v2")
    third = failed(tenant, "the executor failed")
    execution = running(tenant, "it runs")
    execution.tell(
        ("phase", {"phase": "load", "text": "it is loaded"}),
        ("calls", {"in_flight": 2}),
        rollout(0),
        rollout(1, origin="runner", reason="rollout_timeout", error="too late"),
        ("log", {"stream": "stderr", "level": 40, "logger": "calc", "text": "divided by nothing"}),
        ("finding", {"severity": "error", "code": "not-scored", "what": "w", "message": "m", "fix": "f"}),
        ("finding", {"severity": "warning", "code": "single-call", "what": "w", "message": "m", "fix": "f"}),
    )
    live = f"/validations/{execution.claim.job.id}"
    pages = ("/validations", "/validations?query=nothing", "/validations/new", "/compare", "/keys", "/audit")
    judgements = (f"/validations/{one}", f"/validations/{third}", f"/compare?of={one}&of={other}")
    for path in (*pages, *judgements, "/validations/none", live):
        person.tab.reset()
        person.go(path)
        if path == live:
            person.tab.wait("document.querySelectorAll('.notices li').length === 2")
        assert (path, looked_at(person, axe)) == (path, [])


def test_axe_finds_nothing_where_one_signs_in(tab: Tab, tenant: Tenant, axe: str) -> None:
    person = Person(tab, tenant.server.url)
    person.go("/sign-in")
    assert looked_at(person, axe) == []
    person.fill("input[name=key]", "wrong")
    person.tab.led(lambda: person.tab.press("Enter"))
    assert looked_at(person, axe) == []


def test_everything_is_done_from_the_keyboard_alone(tab: Tab, tenant: Tenant) -> None:
    many(tenant, 3, "calculator")
    job = running(tenant, "it runs").claim.job.id
    person = Person(tab, tenant.server.url)
    person.go("/sign-in")
    # the only field has the focus already
    person.tab.tell("Input.insertText", text=tenant.secret)
    person.tab.led(lambda: person.tab.press("Enter"))
    person.tab_to("one.matches('.skip')")
    person.tab.press("Enter")
    assert person.tab.evaluate("location.hash") == "#main"
    person.tab_to("one.name === 'query'")
    person.tab.tell("Input.insertText", text="it runs")
    person.reads("1 validation", ".count")
    person.tab_to("one.textContent === 'it runs'")
    person.tab.led(lambda: person.tab.press("Enter"))
    assert person.path == f"/validations/{job}"
    person.tab_to("one.textContent === 'Cancel'")
    person.tab.led(lambda: person.tab.press("Enter"))
    assert person.text("#state") == "Stopping"
    assert tenant.http.get(f"/validations/{job}").json()["cancelling"]
    person.tab_to("one.textContent === 'Validations'")
    person.tab.led(lambda: person.tab.press("Enter"))
    person.tab_to("one.textContent === 'calculator 2'")
    person.tab.led(lambda: person.tab.press("Enter"))
    person.tab_to("one.matches('summary') && one.textContent === 'Delete…'")
    person.tab.press("Enter")
    person.tab_to("one.textContent === 'Delete for good'")
    person.tab.led(lambda: person.tab.press("Enter"))
    assert person.path == "/validations"
    assert person.texts("#results th a") == ["it runs", "calculator 1", "calculator 0"]
    person.tab_to("one.textContent === 'Sign out'")
    person.tab.led(lambda: person.tab.press("Enter"))
    assert person.path == "/sign-in"


def test_the_focus_can_be_seen(person: Person) -> None:
    person.go("/validations")
    for _ in range(8):
        person.tab.press("Tab")
        style = person.tab.evaluate(
            "((look) => [look.outlineStyle, look.outlineWidth])(getComputedStyle(document.activeElement))"
        )
        assert style == ["solid", "2px"]


def test_light_and_dark_are_chosen_and_stay_so(person: Person) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    person.go("/validations")
    assert person.tab.evaluate(ground) == "rgb(255, 255, 255)"
    for expected in ("light", "dark"):
        person.click("#switches > button")
        assert person.text("#switches > button") == f"Theme: {expected}"
    assert person.tab.evaluate(ground) == "rgb(20, 23, 28)"
    person.tab.tell("Emulation.setScriptExecutionDisabled", value=True)
    person.go("/keys", ready=False)
    assert person.tab.evaluate(ground) == "rgb(20, 23, 28)"


def test_nothing_moves_for_who_wants_it_so_and_paper_is_spared(person: Person, tenant: Tenant) -> None:
    execution = running(tenant)
    person.go(f"/validations/{execution.claim.job.id}")
    moving = "getComputedStyle(document.querySelector('#state span'), '::before').animationName"
    still = [{"name": "prefers-reduced-motion", "value": "reduce"}]
    assert person.tab.evaluate(moving) == "breathe"
    person.tab.tell("Emulation.setEmulatedMedia", features=still)
    assert person.tab.evaluate(moving) == "none"
    person.tab.prefer(paper=True)
    assert person.tab.evaluate("getComputedStyle(document.querySelector('nav')).display") == "none"
    assert person.tab.pdf().startswith(b"%PDF")
