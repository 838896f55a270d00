"""What one tenant has, another one never sees, and cannot touch, by no address and no form."""

from __future__ import annotations

import re

import httpx
import pytest

from tests.report_page.browser import Tab
from tests.report_page.verdicts import valid, verdict
from tests.service.http.servers import Tenant
from tests.service.web.person import Person, session_of
from tests.service.web.rows import judged, running


@pytest.fixture
def secret(tenant: Tenant) -> dict[str, str]:
    """Validations of the first tenant, by what has come of them."""
    return {
        "judged": judged(tenant, verdict(), "their secret project"),
        "other": judged(tenant, valid(), "their other secret project"),
        "running": running(tenant, "their running secret").claim.job.id,
    }


def test_the_list_and_the_audit_are_empty(tab: Tab, other: Tenant, tenant: Tenant, secret: dict[str, str]) -> None:
    person = Person.of(tab, other)
    assert "There is no validation yet." in person.go("/validations").text()
    assert "No validation is like that." in person.go("/validations?query=secret").text()
    for path in ("/keys", "/audit"):
        seen = person.go(path).tab.evaluate("document.documentElement.outerHTML")
        for what in ("secret project", tenant.name, tenant.key_id, *secret.values()):
            assert what not in seen


def test_addresses_and_forms_of_it_lead_nowhere(tenant: Tenant, other: Tenant, secret: dict[str, str]) -> None:
    cookies = {"benchmax_session": session_of(other.server, other)}
    with httpx.Client(base_url=other.server.url, cookies=cookies) as pages:
        for made in secret.values():
            page = pages.get(f"/validations/{made}")
            assert page.status_code == 404
            assert "secret" not in page.text
            for part in ("", "/events", "/verdict", "/report", "/logs"):
                assert pages.get(f"/api/v1/validations/{made}{part}").status_code == 404
        both = pages.get("/compare", params={"of": [secret["judged"], secret["other"]]})
        assert both.status_code == 404
        found = re.search(r'name="seal" value="([0-9a-f]+)"', pages.get("/keys").text)
        assert found is not None
        own = {"Sec-Fetch-Site": "same-origin"}
        for action in (f"{secret['running']}/cancel", f"{secret['judged']}/delete"):
            answer = pages.post(f"/validations/{action}", data={"seal": found[1]}, headers=own)
            assert answer.status_code == 404
    states = {item["id"]: item["state"] for item in tenant.http.get("/validations").json()["items"]}
    assert states == {secret["judged"]: "done", secret["other"]: "done", secret["running"]: "running"}
    assert not tenant.http.get(f"/validations/{secret['running']}").json()["cancelling"]
