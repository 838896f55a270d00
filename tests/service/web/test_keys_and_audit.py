"""The pages of keys and of what was done."""

from __future__ import annotations

import httpx

from tests.service.http.servers import Tenant
from tests.service.web.person import Person
from tests.service.web.rows import running


def test_a_key_is_made_shown_once_used_and_revoked(person: Person, tenant: Tenant) -> None:
    person.go("/keys")
    person.fill("main input[name=name]", "the night build")
    person.fill("input[name=max_jobs]", "5")
    person.fill("input[name=days]", "0.5")
    person.follow("form[action='/keys'] button")
    secret = person.text("#secret")
    me = httpx.get(f"{tenant.server.url}/api/v1/me", headers={"Authorization": f"Bearer {secret}"}).json()
    assert me["key"]["name"] == "the night build"
    assert me["key"]["scopes"] == ["submit", "read"]
    assert me["key"]["quotas"]["max_jobs"] == 5
    assert 40_000 < me["key"]["expires_at"] - me["key"]["created_at"] <= 43_200
    person.go("/keys")
    assert secret not in person.tab.evaluate("document.documentElement.outerHTML")
    row = "main tbody tr:nth-child(2)"
    assert "the night build" in person.text(row)
    person.click(f"{row} summary")
    assert "not accepted any more" in person.text(row)
    person.follow(f"{row} button")
    assert "revoked" in person.text(row)
    again = httpx.get(f"{tenant.server.url}/api/v1/me", headers={"Authorization": f"Bearer {secret}"})
    assert again.status_code == 401
    assert person.troubles() == []


def test_what_cannot_be_given_is_told_and_what_was_filled_in_stays(tenant: Tenant, person: Person) -> None:
    person.go("/keys")
    person.fill("main input[name=name]", "greedy")
    person.fill("input[name=max_jobs]", "1000000")
    person.follow("form[action='/keys'] button")
    assert "max_jobs = 1000000: it has 100 itself" in person.text("#problem")
    assert person.tab.evaluate("document.querySelector('main input[name=name]').value") == "greedy"
    person.tab.evaluate("for (const one of document.querySelectorAll('[name=scopes]')) one.checked = false")
    person.tab.evaluate("document.querySelector('input[name=max_jobs]').value = ''")
    person.follow("form[action='/keys'] button")
    assert "scopes" in person.text("#problem")
    assert len(tenant.http.get("/keys").json()["items"]) == 1


def test_quotas_are_shown_with_what_is_used_of_them(person: Person, tenant: Tenant) -> None:
    running(tenant)
    tenant.validation()
    person.go("/keys")
    assert [text.split("\n")[-1] for text in person.texts(".meters dd")] == [
        "14 bytes of 1 GiB",
        "2 of 100",
        "1 of 100",
    ]
    assert person.tab.evaluate("[...document.querySelectorAll('meter')].map((one) => one.value).join()") == "14,2,1"


def test_the_audit_says_who_did_what_a_page_at_a_time(person: Person, tenant: Tenant) -> None:
    for number in range(40):
        tenant.validation(f"number {number}")
    person.go("/audit")
    assert person.count("tbody tr") == 100
    assert "validation.create" in person.text("tbody tr:first-child")
    assert "number 39" in person.text("tbody tr:first-child")
    assert f"key of {tenant.name}" in person.text("tbody tr:first-child")
    person.follow("a[rel=next]")
    assert person.count("tbody tr") == 20
    assert not person.has("a[rel=next]")
    assert person.troubles() == []
