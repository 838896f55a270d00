"""Who may do what: keys, scopes, rates, browsers' sessions, and what the audit says of it."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from runner.service.database import keys, sessions
from tests.service.http.servers import PATIENCE_S, SCOPES, ServerProcess, Tenant

ROUTES = [
    ("POST", "/uploads", "submit"),
    ("POST", "/validations", "submit"),
    ("GET", "/validations", "read"),
    ("GET", "/validations/x", "read"),
    ("GET", "/validations/x/events", "read"),
    ("GET", "/validations/x/verdict", "read"),
    ("GET", "/validations/x/report", "read"),
    ("GET", "/validations/x/logs", "read"),
    ("POST", "/validations/x/cancel", "submit"),
    ("DELETE", "/validations/x", "submit"),
    ("GET", "/keys", "admin"),
    ("POST", "/keys", "admin"),
    ("POST", "/keys/x/revoke", "admin"),
    ("GET", "/audit", "admin"),
]
BODIES: dict[str, dict[str, Any]] = {
    "/uploads": {"path": "a", "bytes": 0, "sha256": "0" * 64},
    "/validations": {"name": "n", "artifact": {"pickle": "x", "metadata": "x"}},
    "/keys": {"name": "n", "scopes": ["read"]},
}


def ask(tenant: Tenant, method: str, path: str, **headers: str) -> httpx.Response:
    body = BODIES.get(path) if method == "POST" else None
    return tenant.http.request(method, path, json=body, headers=headers)


@pytest.mark.parametrize(("method", "path", "scope"), ROUTES)
def test_a_route_asks_for_its_scope_and_no_other(
    plain_server: ServerProcess, method: str, path: str, scope: str
) -> None:
    others = tuple(other for other in SCOPES if other != scope)
    with plain_server.tenant(scopes=others) as without, plain_server.tenant(scopes=(scope,)) as with_it:
        refused = ask(without, method, path)
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "missing-scope")
        assert scope in refused.json()["error"]["message"]
        answer = ask(with_it, method, path)
        # nobody gives away a scope that they do not have
        assert answer.status_code != 401
        assert (answer.status_code != 403) or path == "/keys"


@pytest.mark.parametrize(("method", "path"), [*[(m, p) for m, p, _ in ROUTES], ("GET", "/me")])
def test_a_route_asks_for_a_key(strict_server: ServerProcess, method: str, path: str) -> None:
    # of denied requests there may be only so many, so each has an address of its own: the loopback network is large
    number = [*[(m, p) for m, p, _ in ROUTES], ("GET", "/me")].index((method, path)) + 2
    transport = httpx.HTTPTransport(local_address=f"127.0.0.{number}")
    with httpx.Client(transport=transport, base_url=f"{strict_server.url}/api/v1", timeout=PATIENCE_S) as client:
        answer = client.request(method, path, json=BODIES.get(path) if method == "POST" else None)
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "missing-key")
        assert answer.headers["WWW-Authenticate"] == "Bearer"


@pytest.mark.parametrize(
    "shown",
    ["Bearer x", "Bearer bmx_key_aaaaaaaaaaaaaaaaaaaa_" + "A" * 43, "Basic eDp4", "Bearer", "", "Bearer \xff\xfe"],
)
def test_what_is_no_key_is_refused(plain_server: ServerProcess, shown: str) -> None:
    answer = plain_server.get("/api/v1/me", headers={b"Authorization": shown.encode("latin-1")})
    assert answer.status_code == 401
    assert answer.json()["error"]["code"] in ("missing-key", "unknown-key")


def test_a_key_with_one_character_changed_is_refused(tenant: Tenant) -> None:
    for position in (10, -1):
        changed = [*tenant.secret]
        changed[position] = "a" if changed[position] != "a" else "b"
        answer = tenant.http.get("/me", headers={"Authorization": f"Bearer {''.join(changed)}"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "unknown-key")


def test_a_key_is_told_what_it_is_and_uses(tenant: Tenant) -> None:
    tenant.validation()
    said = tenant.http.get("/me").json()
    assert said["tenant"] == {"id": tenant.id, "name": tenant.name}
    assert (said["key"]["id"], said["key"]["scopes"]) == (tenant.key_id, [*SCOPES])
    assert said["usage"] == {"bytes": 7, "jobs": 1, "running": 0}
    assert said["key"]["quotas"]["max_jobs"] == 100
    assert tenant.secret not in tenant.http.get("/me").text


def test_a_use_is_noted(tenant: Tenant) -> None:
    tenant.http.get("/me")
    assert tenant.http.get("/me").json()["key"]["last_used_at"] > 0


# -- keys of a tenant -----------------------------------------------------------------------------------------


def test_an_administrator_makes_lists_and_revokes_keys(tenant: Tenant) -> None:
    made = tenant.http.post(
        "/keys", json={"name": "ci", "scopes": ["submit", "read"], "expires_in_s": 3600, "quotas": {"max_jobs": 1}}
    )
    assert made.status_code == 201
    key = made.json()
    assert key["scopes"] == ["submit", "read"]
    assert key["expires_at"] == pytest.approx(key["created_at"] + 3600, abs=60)
    assert (key["quotas"]["max_jobs"], key["quotas"]["max_bytes"]) == (1, 1 << 30)
    shown = {"Authorization": f"Bearer {key['secret']}"}
    assert tenant.http.get("/me", headers=shown).json()["tenant"]["id"] == tenant.id
    listed = tenant.http.get("/keys")
    assert [item["id"] for item in listed.json()["items"]] == [tenant.key_id, key["id"]]
    assert "secret" not in listed.text
    revoked = tenant.http.post(f"/keys/{key['id']}/revoke")
    assert (revoked.status_code, revoked.json()["revoked_at"] > 0) == (200, True)
    assert tenant.http.get("/me", headers=shown).status_code == 401
    assert tenant.http.post(f"/keys/{key['id']}/revoke").json() == revoked.json()


def test_an_expired_key_is_refused(tenant: Tenant) -> None:
    _, secret = tenant.server.database.run_now(
        keys.create,
        tenant=tenant.name,
        name="old",
        scopes=["read"],
        expires_at=1.0,
        max_bytes=1,
        max_jobs=1,
        max_running=1,
        requests_per_minute=1,
    )
    assert tenant.http.get("/me", headers={"Authorization": f"Bearer {secret}"}).status_code == 401


def test_nobody_gives_away_what_they_do_not_have(server: ServerProcess) -> None:
    with server.tenant(scopes=("admin", "read"), max_jobs=5) as tenant:
        for asked, code in (
            ({"scopes": ["submit"]}, "missing-scope"),
            ({"scopes": ["read"], "quotas": {"max_jobs": 6}}, "beyond-quota"),
        ):
            answer = tenant.http.post("/keys", json={"name": "more", **asked})
            assert (answer.status_code, answer.json()["error"]["code"]) == (403, code)
        assert len(tenant.http.get("/keys").json()["items"]) == 1


def test_another_tenants_key_cannot_be_revoked(tenant: Tenant, other: Tenant) -> None:
    answer = tenant.http.post(f"/keys/{other.key_id}/revoke")
    none = tenant.http.post("/keys/key_aaaaaaaaaaaaaaaaaaaa/revoke")
    assert answer.status_code == none.status_code == 404
    assert answer.json()["error"] == none.json()["error"]
    assert other.http.get("/me").status_code == 200


# -- rates ----------------------------------------------------------------------------------------------------


def test_a_key_that_asks_too_often_is_told_when_to_come_back(server: ServerProcess) -> None:
    with server.tenant(requests_per_minute=12) as tenant, tenant.another() as another:
        answers = [tenant.http.get("/me") for _ in range(30)]
        refused = [answer for answer in answers if answer.status_code == 429]
        assert refused
        assert answers[0].status_code == 200
        assert refused[0].json()["error"]["code"] == "too-many-requests"
        assert 1 <= int(refused[0].headers["Retry-After"]) <= 6
        # each key has a rate of its own
        assert another.http.get("/me").status_code == 200


def test_an_address_that_is_denied_too_often_is_not_looked_at(strict_server: ServerProcess) -> None:
    transport = httpx.HTTPTransport(local_address="127.0.1.1")
    with httpx.Client(transport=transport, base_url=f"{strict_server.url}/api/v1", timeout=PATIENCE_S) as client:
        answers = [client.get("/me", headers={"Authorization": "Bearer x"}) for _ in range(40)]
        assert answers[0].status_code == 401
        assert answers[-1].status_code == 429
        assert answers[-1].json()["error"]["code"] == "too-many-denied"
        # who has a key is not locked out by others behind the same address
        with strict_server.tenant() as tenant:
            assert client.get("/me", headers={"Authorization": f"Bearer {tenant.secret}"}).status_code == 200


# -- browsers -------------------------------------------------------------------------------------------------


@pytest.fixture
def cookie(tenant: Tenant) -> dict[str, str]:
    token = tenant.server.database.run_now(sessions.create, tenant.key_id, lifetime_s=600.0)
    del tenant.http.headers["Authorization"]
    return {"Cookie": f"benchmax_session={token}"}


def test_a_browser_that_has_signed_in_reads_with_its_cookie(tenant: Tenant, cookie: dict[str, str]) -> None:
    assert tenant.http.get("/me", headers=cookie).json()["tenant"]["id"] == tenant.id
    assert tenant.http.get("/me", headers={"Cookie": "benchmax_session=x"}).status_code == 401


@pytest.mark.parametrize(
    ("says", "good"),
    [
        ({}, False),
        ({"Sec-Fetch-Site": "same-origin"}, True),
        ({"Sec-Fetch-Site": "same-site"}, False),
        ({"Sec-Fetch-Site": "cross-site"}, False),
        ({"Sec-Fetch-Site": "none"}, False),
        ({"Origin": "https://elsewhere.example"}, False),
        ({"Origin": "null"}, False),
        ({"Origin": "own"}, True),
        ({"Origin": "own", "Sec-Fetch-Site": "cross-site"}, False),
    ],
)
def test_only_the_services_own_pages_change_something(
    tenant: Tenant, cookie: dict[str, str], says: dict[str, str], good: bool
) -> None:
    headers = {name: tenant.server.url if value == "own" else value for name, value in says.items()}
    answer = tenant.http.post("/keys", json=BODIES["/keys"], headers={**cookie, **headers})
    assert answer.status_code == (201 if good else 403)
    if not good:
        assert answer.json()["error"]["code"] == "foreign-page"


def test_a_session_ends_with_its_key(tenant: Tenant, cookie: dict[str, str]) -> None:
    tenant.server.database.run_now(keys.revoke, tenant.key_id)
    assert tenant.http.get("/me", headers=cookie).status_code == 401


def test_a_key_that_is_shown_counts_and_not_the_cookie(tenant: Tenant, other: Tenant, cookie: dict[str, str]) -> None:
    shown = {"Authorization": f"Bearer {other.secret}", **cookie}
    assert tenant.http.get("/me", headers=shown).json()["tenant"]["id"] == other.id


# -- audit ----------------------------------------------------------------------------------------------------


def test_changes_and_denied_accesses_are_audited(tenant: Tenant) -> None:
    validation = tenant.validation("audited")
    tenant.http.post(f"/validations/{validation}/cancel")
    tenant.http.delete(f"/validations/{validation}")
    key = tenant.http.post("/keys", json=BODIES["/keys"]).json()
    reader = {"Authorization": f"Bearer {key['secret']}"}
    denied = tenant.http.post("/keys", json=BODIES["/keys"], headers=reader)
    tenant.http.post(f"/keys/{key['id']}/revoke")
    entries = tenant.http.get("/audit").json()["items"]
    assert [(entry["action"], entry["outcome"]) for entry in entries] == [
        ("key.revoke", "ok"),
        ("access", "missing-scope"),
        ("key.create", "ok"),
        ("validation.delete", "ok"),
        ("validation.cancel", "ok"),
        ("validation.create", "ok"),
        ("upload.store", "ok"),
        ("upload.create", "ok"),
    ]
    assert entries[1]["key_id"] == key["id"]
    assert entries[1]["request_id"] == denied.headers["X-Request-Id"]
    assert entries[1]["address"] == "127.0.0.1"
    assert all(tenant.secret not in str(entry) and key["secret"] not in str(entry) for entry in entries)


def test_the_audit_is_read_in_pages(tenant: Tenant) -> None:
    for _ in range(3):
        tenant.upload(b"x")
    first = tenant.http.get("/audit", params={"limit": 4}).json()
    second = tenant.http.get("/audit", params={"limit": 4, "before": first["next"]}).json()
    ids = [entry["id"] for entry in first["items"] + second["items"]]
    assert len(ids) == 6
    assert ids == sorted(ids, reverse=True)
    assert second["next"] is None


def test_what_was_refused_is_no_change(tenant: Tenant) -> None:
    tenant.http.post("/validations", json=BODIES["/validations"])
    assert tenant.http.get("/audit").json()["items"] == []
