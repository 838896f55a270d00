"""Names, outputs, findings and results made to harm whoever looks: all of it is text, and none of it acts."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
import msgspec
import pytest

from benchmax.bundle.findings.finding import Finding
from tests.report_page.verdicts import checks, valid, verdict
from tests.service.http.servers import Execution, Tenant
from tests.service.web.person import Person, session_of
from tests.service.web.rows import failed, judged, rollout, running

SCRIPT = "<script>window.attacked = 1</script>"
ATTACKS = (
    SCRIPT,
    "\"><img src=x onerror='window.attacked = 1'>",
    "</title></textarea></style><svg onload=window.attacked=1>",
    "{{ 7 * 7 }}{% raw %}",
    "javascript:window.attacked=1",
    "\u202egnp.exe\u2066\u200b",
    "\x1b]0;owned\x07\x9b31m",
    "&lt;b&gt; &amp;",
    "w" * 5_000,
)
NAMES = [attack[:150] for attack in ATTACKS if attack.isprintable()] + ["\u202egnp.exe\u2066\u200b"]
UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069]")
PAGES = ("/validations", "/validations?query=<script>", "/validations/new", "/compare", "/keys", "/audit", "/sign-in")


def is_unharmed(person: Person) -> None:
    """Nothing that was put in has run, became an element, or moves what is read."""
    assert person.tab.evaluate("window.attacked ?? null") is None
    assert person.count("main script, main img, main svg, main textarea") == 0
    assert UNSEEN.findall(person.tab.evaluate("document.documentElement.outerHTML")) == []
    assert person.troubles() == []
    person.tab.size(360)
    assert person.tab.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def test_names_are_text_wherever_they_are_shown(person: Person, tenant: Tenant) -> None:
    made = [tenant.validation(name) for name in NAMES]
    with tenant.another() as another:
        asked = {"name": NAMES[0], "scopes": ["read"]}
        assert another.http.post("/keys", json=asked).status_code == 201
    for path in ("/validations", "/keys", "/audit", f"/validations/{made[0]}", f"/validations/{made[-1]}"):
        person.go(path)
        is_unharmed(person)
    person.go("/validations")
    assert SCRIPT in person.texts("#results th")
    assert "\\u202egnp.exe\\u2066\\u200b" in person.texts("#results th")


@pytest.mark.parametrize("attack", ATTACKS, ids=range(len(ATTACKS)))
def test_what_a_run_says_is_text(person: Person, tenant: Tenant, attack: str) -> None:
    execution = running(tenant)
    person.go(f"/validations/{execution.claim.job.id}")
    told = {"severity": attack, "code": attack, "what": attack, "message": attack, "fix": attack, "file": attack}
    execution.tell(
        ("phase", {"phase": attack, "text": attack}),
        ("log", {"stream": attack, "level": 40, "logger": attack, "text": attack * 10}),
        ("calls", {"in_flight": 1}),
        ("finding", {**told, "line": 1}),
        rollout(
            0, rollout_id=attack, reason=attack, error=attack, rewards={attack: 1.0, "nan": None}, **{"pass": attack}
        ),
        rollout(1, rewards={"__proto__": 2.0, "constructor": 1.0}),
    )
    person.tab.wait("document.querySelectorAll('.newest tbody tr').length === 2")
    is_unharmed(person)


def test_events_of_kinds_and_shapes_that_nobody_knows_do_no_harm(person: Person, tenant: Tenant) -> None:
    execution = running(tenant)
    person.go(f"/validations/{execution.claim.job.id}")
    execution.tell(("constructor", {"a": 1}), ("rollout", {}), ("log", {}), ("phase", {}), ("finding", {}), rollout(1))
    person.tab.wait("document.querySelectorAll('.newest tbody tr').length === 2")
    assert person.troubles() == []


def test_verdicts_and_errors_are_text(person: Person, tenant: Tenant) -> None:
    whole = "".join(ATTACKS)
    found = Finding(severity="error", code=whole, what=whole, message=whole, fix=whole, file=whole, line=1)
    looked_at = [msgspec.structs.replace(one, name=whole, why=whole) for one in checks(siblings="skipped")[:3]]
    bad = verdict(findings=[found], checks=looked_at)
    one, other = judged(tenant, bad, "one"), judged(tenant, valid(), "other")
    third = failed(tenant, f"it failed: {whole}")
    for path in (f"/validations/{one}", f"/compare?of={one}&of={other}", f"/validations/{third}"):
        person.go(path)
        person.tab.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
        is_unharmed(person)


def test_a_report_is_a_document_of_nobodys(person: Person, tenant: Tenant) -> None:
    page = b"<script>try { parent.document.title = 'owned' } catch { document.title = 'kept out' }</script><p>here"
    made = tenant.validation()
    Execution.of(tenant.server, made).end(results={"verdict": valid().to_json(), "report": page})
    person.go(f"/validations/{made}")
    frame = person.tab.evaluate(
        "(({ sandbox, contentDocument }) => [sandbox.value, contentDocument])(document.querySelector('iframe'))"
    )
    assert frame == ["allow-scripts allow-popups", None]
    assert person.tab.evaluate("document.title") == "Valid: a validation · benchmax"


@pytest.fixture
def pages(tenant: Tenant) -> Iterator[httpx.Client]:
    cookies = {"benchmax_session": session_of(tenant.server, tenant)}
    with httpx.Client(base_url=tenant.server.url, cookies=cookies) as client:
        yield client


@pytest.mark.parametrize("path", [*PAGES, "/validations/none", "/keys/none/revoke"])
def test_every_page_forbids_itself_what_it_does_not_need(pages: httpx.Client, path: str) -> None:
    headers = pages.get(path).headers
    if "html" in headers.get("content-type", ""):
        assert headers["content-security-policy"] == (
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
            "frame-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
        )
        assert headers["referrer-policy"] == "same-origin"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"


def test_what_pages_load_is_kept_under_the_name_of_its_content(pages: httpx.Client) -> None:
    addresses = {*re.findall(r'(?:href|src)="(/static/[^"]+)"', pages.get("/sign-in").text)}
    assert len(addresses) == 9
    digest = min(addresses).split("/")[2]
    for address in addresses:
        answer = pages.get(address)
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert pages.get(address.replace(digest, "0" * 16)).status_code == 404
    assert pages.get(f"/static/{digest}/../page.js").status_code == 404
    assert pages.get(f"/static/{digest}/..%2f..%2frouting.py").status_code == 404


@pytest.mark.parametrize(
    "path",
    [
        "/validations?query=%00",
        "/validations?query=%ff%fe",
        "/validations?state=nonsense",
        "/validations?before=nonsense",
        "/validations?before=1e999~a",
        "/validations?before=nan~%00",
        f"/validations?query={'x' * 300}",
        "/compare?of=..%2f..&of=%00",
        "/audit?before=-1",
        "/validations/%00",
        "/validations/<script>",
        "/sign-in?next=%00",
    ],
)
def test_addresses_made_up_are_answered_with_a_page(pages: httpx.Client, path: str) -> None:
    answer = pages.get(path)
    assert answer.status_code in (200, 404, 422), answer.text
    assert answer.headers["content-type"].startswith("text/html")
    assert "<script>" not in answer.text.lower().replace('<script type="module"', "")
