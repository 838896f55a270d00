"""A validation looked at while it runs: events appear once, in order, through whatever happens to the connection."""

from __future__ import annotations

from pathlib import Path

from tests.report_page.browser import Tab
from tests.report_page.verdicts import verdict
from tests.service.http.servers import Execution, Tenant
from tests.service.http.servers import running as serving
from tests.service.nursery import Nursery
from tests.service.web.person import Person
from tests.service.web.rows import history, rollout, running

ROWS = ".newest tbody tr"


def look(person: Person, how: str) -> None:
    """Have the tab be looked at, or be one of many that are not."""
    person.tab.evaluate(
        f"Object.defineProperty(document, 'visibilityState', {{ configurable: true, value: '{how}' }}); "
        "document.dispatchEvent(new Event('visibilitychange'))"
    )


def test_phases_rollouts_calls_output_and_findings_appear(person: Person, tenant: Tenant) -> None:
    execution = running(tenant, "calculator")
    person.go(f"/validations/{execution.claim.job.id}")
    person.reads("live", "#connection")
    assert person.text("#state") == "Running"
    execution.tell(("phase", {"phase": "load", "text": "the bundle is loaded"}))
    person.reads("load the bundle is loaded", ".phases [aria-current]")
    person.reads("the bundle is loaded", "#said")
    execution.tell(("phase", {"phase": "rollouts", "text": "8 rollouts"}), ("calls", {"in_flight": 3}))
    execution.tell(rollout(0), rollout(1), rollout(2, reason="rollout_timeout", origin="runner", error="too late"))
    person.tab.wait(f"document.querySelectorAll('{ROWS}').length === 3")
    assert person.texts(f"{ROWS} td:nth-child(3)") == ["rollout_timeout too late", "finished", "finished"]
    assert person.texts(".tiles dd") == ["3", "1", "3", "0", "0"]
    assert "correct 0.333" in person.text("#progress")
    execution.tell(("log", {"stream": "stderr", "level": 40, "logger": "calc", "text": "divided by nothing"}))
    person.reads("calc divided by nothing", ".output")
    finding = {
        "severity": "error",
        "code": "not-scored",
        "what": "1-a-0",
        "message": "it has no score",
        "fix": "Score.",
    }
    execution.tell(("finding", {**finding, "file": "env.py", "line": 7}))
    person.reads("not-scored 1-a-0: it has no score.\n\nenv.py:7\n\nNext: Score.", ".notices")
    assert person.texts(".phases [aria-current]") == ["rollouts 8 rollouts"]
    assert person.troubles() == []


def test_the_end_shows_verdict_and_report_in_place_and_keeps_the_focus(person: Person, tenant: Tenant) -> None:
    execution = running(tenant, "calculator")
    person.go(f"/validations/{execution.claim.job.id}")
    person.reads("live", "#connection")
    person.tab.evaluate("document.querySelector('#validation button').focus()")
    judged = verdict()
    execution.end(judgement="invalid", results={"verdict": judged.to_json(), "report": b"<p>a report", "logs": b"out"})
    person.reads("Invalid", "#state")
    assert person.text("#state").split("\n") == ["Invalid", "1 error, 1 warning, 6 rollouts"]
    assert person.tab.evaluate("document.title") == "Invalid: calculator · benchmax"
    assert person.tab.evaluate("document.activeElement.tagName") == "H1"
    person.reads("calculator is over: Invalid", "#said")
    assert person.has("iframe.report")
    assert not person.has("#live")
    assert person.troubles() == []


def test_one_that_waits_says_so_and_begins_before_ones_eyes(person: Person, tenant: Tenant) -> None:
    made = tenant.validation()
    person.go(f"/validations/{made}")
    assert person.text("#state") == "Waiting"
    Execution.of(tenant.server, made).tell(("phase", {"phase": "load", "text": "it begins"}))
    person.reads("it begins")
    person.reads("Running", "#state")


def test_a_reload_shows_everything_once_again(person: Person, tenant: Tenant) -> None:
    execution = running(tenant)
    execution.tell(rollout(0), rollout(1))
    for _ in range(2):
        person.go(f"/validations/{execution.claim.job.id}")
        person.tab.wait(f"document.querySelectorAll('{ROWS}').length === 2")
    execution.tell(rollout(2))
    person.tab.wait(f"document.querySelectorAll('{ROWS}').length === 3")
    assert person.texts(".tiles dd")[0] == "3"


def test_a_tab_that_is_not_looked_at_leaves_its_connection_and_goes_on_where_it_was(
    person: Person, tenant: Tenant
) -> None:
    execution = running(tenant)
    execution.tell(rollout(0))
    person.go(f"/validations/{execution.claim.job.id}")
    person.tab.wait(f"document.querySelectorAll('{ROWS}').length === 1")
    look(person, "hidden")
    execution.tell(rollout(1))
    look(person, "visible")
    person.tab.wait(f"document.querySelectorAll('{ROWS}').length === 2")
    asked = [url for url in person.tab.requests() if "/events" in url]
    assert [url.partition("?")[2] for url in asked] == ["after=0", "after=1"]


def test_a_server_that_goes_and_comes_back_is_followed_again(tab: Tab, nursery: Nursery, folder: Path) -> None:
    with serving(nursery, folder) as server, server.tenant() as tenant:
        execution = running(tenant)
        execution.tell(rollout(0))
        person = Person.of(tab, tenant)
        person.go(f"/validations/{execution.claim.job.id}")
        person.tab.wait(f"document.querySelectorAll('{ROWS}').length === 1")
        server.process.kill()
        server.process.wait()
        person.reads("connection lost, trying again", "#connection")
        execution.tell(rollout(1))
        with serving(nursery, folder, port=server.port):
            person.tab.wait(f"document.querySelectorAll('{ROWS}').length === 2")
            person.reads("live", "#connection")
            assert person.texts(f"{ROWS} th") == ["0-abcdefgh-1", "0-abcdefgh-0"]
            execution.end()
            person.reads("Valid", "#state")


def test_five_thousand_rollouts_are_counted_and_the_newest_are_listed(person: Person, tenant: Tenant) -> None:
    execution = running(tenant)
    history(execution, (rollout(number) for number in range(5_000)))
    person.go(f"/validations/{execution.claim.job.id}")
    person.reads("5,000", ".tiles")
    assert person.count(ROWS) == 200
    assert person.texts(f"{ROWS} th")[0] == "1249-abcdefgh-3"
    assert "The newest 200 of 5,000." in person.text("#progress")
    assert "correct 0.5" in person.text("#progress")
    execution.tell(rollout(5_000))
    person.reads("5,001", ".tiles")
    assert person.count(ROWS) == 200
    assert person.count("#progress *") < 3_000


def test_who_is_signed_out_meanwhile_is_told_that_it_cannot_be_followed(person: Person, tenant: Tenant) -> None:
    execution = running(tenant)
    person.go(f"/validations/{execution.claim.job.id}")
    person.reads("live", "#connection")
    person.tab.tell("Network.clearBrowserCookies")
    look(person, "hidden")
    look(person, "visible")
    person.reads("no longer to be followed", "#connection")
