"""The list: filters with and without a script, pages, states that change while one looks, and two to compare."""

from __future__ import annotations

import httpx

from tests.report_page.verdicts import valid, verdict
from tests.service.http.servers import Execution, Tenant
from tests.service.web.person import Person, session_of
from tests.service.web.rows import judged, many, running

NAMES = "#results tbody th"


def test_filters_act_without_a_reload_and_are_in_the_address(person: Person, tenant: Tenant) -> None:
    many(tenant, 9, "calculator")
    many(tenant, 3, "search")
    person.go("/validations")
    person.tab.evaluate("window.same = true")
    person.fill("input[name=query]", "search")
    person.reads("3 validations", ".count")
    assert person.path == "/validations?query=search"
    person.reads("3 validations", "#said")
    assert person.tab.evaluate("document.activeElement.name") == "query"
    person.tab.evaluate(
        "document.querySelector('[name=judgement]').value = 'invalid'; "
        "document.querySelector('[name=judgement]').dispatchEvent(new Event('input', {bubbles: true}))"
    )
    person.reads("1 validation", ".count")
    assert person.texts(NAMES) == ["search 1"]
    assert person.tab.evaluate("window.same") is True
    person.go(person.path)
    assert person.texts(NAMES) == ["search 1"]
    assert person.tab.evaluate("document.querySelector('[name=judgement]').value") == "invalid"
    assert person.troubles() == []


def test_five_hundred_are_there_a_page_at_a_time(person: Person, tenant: Tenant) -> None:
    many(tenant, 500)
    person.go("/validations")
    seen = person.texts(NAMES)
    while person.has("a[rel=next]"):
        person.follow("a[rel=next]")
        seen += person.texts(NAMES)
        assert person.count("#results tr") <= 51
    assert seen == [f"validation {number}" for number in reversed(range(500))]
    person.go("/validations?query=validation+499")
    assert person.texts(NAMES) == ["validation 499"]


def test_states_change_while_one_looks(person: Person, tenant: Tenant) -> None:
    waiting = tenant.validation("it waits")
    person.go("/validations")
    assert person.texts(".cell-state") == ["Waiting"]
    execution = Execution.of(tenant.server, waiting)
    person.reads("Running", ".cell-state")
    execution.end(results={"verdict": valid().to_json()})
    person.reads("Valid", ".cell-state")
    person.reads("it waits: Valid", "#said")
    assert not person.tab.evaluate("document.querySelector('.tick input').disabled")


def test_two_are_ticked_and_compared(person: Person, tenant: Tenant) -> None:
    judged(tenant, verdict(), "calculator v1")
    judged(tenant, valid(), "calculator v2")
    running(tenant)
    person.go("/validations")
    assert person.tab.evaluate("document.querySelector('[data-compare] button').disabled")
    assert person.tab.evaluate("document.querySelectorAll('.tick input')[0].disabled")
    person.click("#results tr:nth-child(2) input")
    person.click("#results tr:nth-child(3) input")
    person.follow("[data-compare] button")
    assert person.texts("main section:first-of-type a") == ["calculator v1", "calculator v2"]
    assert person.texts("h3") == ["Appeared: 0", "Gone: 2", "In both: 0"]
    assert "correct\t0.5\t1\t+0.5" in person.text("[aria-labelledby=rewards-title] table")
    assert "siblings" in person.texts(".differs th")
    assert "rollout_timeout" in person.text("[aria-labelledby=runs-title]")
    assert person.troubles() == []


def test_one_alone_or_one_without_a_verdict_is_not_compared(tenant: Tenant) -> None:
    one, other = judged(tenant, verdict()), tenant.validation("it waits")
    cookies = {"benchmax_session": session_of(tenant.server, tenant)}
    with httpx.Client(base_url=tenant.server.url, cookies=cookies) as pages:
        assert "1 is chosen" in pages.get("/compare", params={"of": [one, one]}).text
        without = pages.get("/compare", params={"of": [one, other]})
        assert (without.status_code, "there is no verdict on it waits" in without.text) == (409, True)


def test_everything_can_be_read_and_filtered_without_scripts(person: Person, tenant: Tenant) -> None:
    made = judged(tenant, verdict(), "calculator")
    judged(tenant, valid(), "search")
    person.tab.tell("Emulation.setScriptExecutionDisabled", value=True)
    person.go("/validations?query=calc", ready=False)
    assert person.texts(NAMES) == ["calculator"]
    assert person.text("[data-filters] button") == "Show"
    person.go(f"/validations/{made}", ready=False)
    assert person.text("#state").startswith("Invalid")
    assert "not-scored 0-aaaa-1" in person.text("[aria-labelledby=findings-title]")
    assert person.has("iframe.report")
    running_one = running(tenant).claim.job.id
    person.go(f"/validations/{running_one}", ready=False)
    assert "loads itself again" in person.text("#live noscript")
    person.go("/validations/new", ready=False)
    assert "benchmax submit DIR --server" in person.text("noscript")
