"""Signing in and out, what a session's cookie is like, and forms that are not of the service's own pages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.report_page.browser import Tab
from tests.service.http.servers import ServerProcess, Tenant
from tests.service.http.servers import running as serving
from tests.service.nursery import Nursery
from tests.service.web.person import Person, session_of

OWN = {"Sec-Fetch-Site": "same-origin"}


@pytest.fixture
def pages(tenant: Tenant) -> Iterator[httpx.Client]:
    """A browser that has signed in with the tenant's key, without a window."""
    cookies = {"benchmax_session": session_of(tenant.server, tenant)}
    with httpx.Client(base_url=tenant.server.url, cookies=cookies) as client:
        yield client


def seal_of(client: httpx.Client) -> str:
    found = re.search(r'name="seal" value="([0-9a-f]{64})"', client.get("/keys").text)
    assert found is not None
    return found[1]


def test_a_key_leads_in_and_the_session_ends_with_signing_out(tab: Tab, tenant: Tenant) -> None:
    person = Person(tab, tenant.server.url)
    person.go("/")
    assert person.path == "/sign-in"
    person.fill("input[name=key]", tenant.secret)
    person.tab.led(lambda: person.tab.press("Enter"))
    assert person.path == "/validations"
    assert tenant.name in person.text(".who")
    (cookie,) = person.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Strict", "/")
    assert tenant.secret not in person.tab.evaluate("document.documentElement.outerHTML + document.cookie")
    person.follow("form[action='/sign-out'] button")
    assert person.path == "/sign-in"
    assert person.cookies() == []
    # what the cookie was is worth nothing any more
    answer = httpx.get(f"{tenant.server.url}/validations", cookies={"benchmax_session": cookie["value"]})
    assert (answer.status_code, answer.headers["location"]) == (303, "/sign-in?next=%2Fvalidations")
    actions = [entry["action"] for entry in tenant.http.get("/audit").json()["items"]]
    assert {"session.begin", "session.end"} <= {*actions}
    # of a session the database has no token
    assert cookie["value"].encode() not in Path(f"{tenant.server.settings.server.data}/benchmax.db").read_bytes()


def test_a_wrong_key_is_refused_in_words_that_are_heard(tab: Tab, tenant: Tenant) -> None:
    person = Person(tab, tenant.server.url)
    person.go("/sign-in")
    person.fill("input[name=key]", "bmx_wrong")
    person.tab.led(lambda: person.tab.press("Enter"))
    assert person.text("[role=alert]") == "That key is not known, has expired or was revoked."
    assert (
        person.tab.evaluate("document.querySelector('input[name=key]').getAttribute('aria-describedby')") == "problem"
    )
    assert person.cookies() == []


def test_guessing_is_slowed_down(strict_server: ServerProcess) -> None:
    with httpx.Client(base_url=strict_server.url, headers=OWN) as client:
        statuses = [client.post("/sign-in", data={"key": f"bmx_{number}"}).status_code for number in range(30)]
    assert {*statuses} == {403, 429}


def test_who_came_for_a_page_gets_there_and_nowhere_else(tab: Tab, tenant: Tenant) -> None:
    person = Person(tab, tenant.server.url)
    person.go("/keys")
    assert person.path == "/sign-in?next=%2Fkeys"
    person.fill("input[name=key]", tenant.secret)
    person.tab.led(lambda: person.tab.press("Enter"))
    assert person.path == "/keys"
    for elsewhere in (
        "//evil.example/",
        "https://evil.example/",
        "/\\evil.example",
        "/validations\r\nX: y",
        "/api/v1/me",
    ):
        answer = httpx.post(f"{tenant.server.url}/sign-in", data={"key": tenant.secret, "next": elsewhere}, headers=OWN)
        assert (answer.status_code, answer.headers["location"]) == (303, "/validations"), elsewhere


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {},
    ],
    ids=str,
)
@pytest.mark.parametrize("path", ["/sign-in", "/sign-out", "/keys"])
def test_a_form_of_another_page_does_nothing(
    tenant: Tenant, pages: httpx.Client, path: str, headers: dict[str, str]
) -> None:
    data = {"seal": seal_of(pages), "key": tenant.secret, "name": "stolen", "scopes": "read"}
    answer = pages.post(path, data=data, headers=headers)
    assert answer.status_code == 403
    assert "not the service&#39;s own" in answer.text
    assert "set-cookie" not in answer.headers
    assert pages.get("/validations").status_code == 200
    assert len(tenant.http.get("/keys").json()["items"]) == 1


@pytest.mark.parametrize("seal", ["", "0" * 64, "ü"])
def test_a_form_without_the_seal_of_its_session_does_nothing(tenant: Tenant, pages: httpx.Client, seal: str) -> None:
    answer = pages.post("/keys", data={"seal": seal, "name": "new", "scopes": "read"}, headers=OWN)
    assert answer.status_code == 403
    assert len(tenant.http.get("/keys").json()["items"]) == 1
    assert tenant.http.get("/audit").json()["items"][0]["outcome"] == "foreign-form"


def test_the_seal_of_one_session_is_none_of_another(tenant: Tenant, pages: httpx.Client) -> None:
    with httpx.Client(base_url=tenant.server.url) as another:
        another.cookies.set("benchmax_session", session_of(tenant.server, tenant))
        assert seal_of(another) != seal_of(pages)
        answer = another.post("/sign-out", data={"seal": seal_of(pages)}, headers=OWN)
    assert answer.status_code == 403


@pytest.mark.parametrize(
    "content", [b"seal=%ff", b"&".join(b"a=%d" % number for number in range(200)), b'{"seal": ""}']
)
def test_what_is_no_form_is_refused(pages: httpx.Client, content: bytes) -> None:
    kind = "application/json" if content.startswith(b"{") else "application/x-www-form-urlencoded"
    answer = pages.post("/sign-out", content=content, headers={**OWN, "Content-Type": kind})
    assert answer.status_code == 422


def test_a_key_that_was_revoked_ends_its_sessions(tenant: Tenant, pages: httpx.Client) -> None:
    assert pages.get("/validations").status_code == 200
    with tenant.another() as admin:
        assert admin.http.post(f"/keys/{tenant.key_id}/revoke").status_code == 200
    assert pages.get("/validations").headers["location"].startswith("/sign-in")


def test_pages_show_nothing_that_a_key_may_not(tenant: Tenant) -> None:
    with tenant.another(scopes=("read",)) as reader:
        cookies = {"benchmax_session": session_of(tenant.server, reader)}
        with httpx.Client(base_url=tenant.server.url, cookies=cookies) as pages:
            listed = pages.get("/validations").text
            assert "/validations/new" not in listed
            assert 'href="/audit"' not in listed
            for path in ("/validations/new", "/audit"):
                refused = pages.get(path)
                assert refused.status_code == 403
                assert "it needs the scope" in refused.text
            answer = pages.post("/keys", data={"seal": seal_of(pages), "name": "x", "scopes": "read"}, headers=OWN)
            assert answer.status_code == 403


def test_over_tls_the_cookie_is_one_that_no_other_host_can_set(nursery: Nursery, folder: Path) -> None:
    environ = {"BENCHMAX_SERVE_PUBLIC_URL": "https://benchmax.example"}
    with serving(nursery, folder, environ=environ) as server, server.tenant() as tenant:
        origin = {"Origin": "https://benchmax.example"}
        answer = httpx.post(f"{server.url}/sign-in", data={"key": tenant.secret}, headers=origin)
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith("__Host-benchmax_session=")
        assert {"HttpOnly", "Secure", "Path=/", "SameSite=strict"} <= {*cookie.split("; ")}
        assert "domain" not in cookie.lower()
        # one without the prefix is not looked at
        plain = {"Cookie": f"benchmax_session={session_of(server, tenant)}"}
        assert httpx.get(f"{server.url}/validations", headers=plain).status_code == 303
