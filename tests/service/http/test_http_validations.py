"""Validations over HTTP: submitted, listed, looked at, cancelled, deleted, and nobody else's."""

from __future__ import annotations

import json
from typing import Any

import pytest

from runner.service.database import jobs
from tests.service.http.servers import Execution, ServerProcess, Tenant

ABSENT = "job_aaaaaaaaaaaaaaaaaaaa"


def asked(tenant: Tenant, **differently: Any) -> dict[str, Any]:
    upload = tenant.upload(b"content")
    return {"name": "a validation", "artifact": {"pickle": upload, "metadata": upload}, **differently}


def test_a_validation_waits_until_an_executor_takes_it(tenant: Tenant) -> None:
    upload = tenant.upload(b"content")
    answer = tenant.http.post(
        "/validations",
        json={
            "name": "mine",
            "artifact": {"pickle": upload, "metadata": upload},
            "files": [{"path": "below/train.jsonl", "upload": upload}],
            "options": {"split": "train", "timeout_s": 5, "max_context_tokens": 100},
        },
    )
    assert answer.status_code == 201
    said = answer.json()
    assert answer.headers["Location"] == f"/api/v1/validations/{said['id']}"
    assert (said["name"], said["state"], said["judgement"], said["last_seq"]) == ("mine", "queued", None, 0)
    assert said["options"] == {"model": None, "split": "train", "timeout_s": 5.0, "max_context_tokens": 100}
    assert tenant.http.get(f"/validations/{said['id']}").json() == said
    execution = Execution.of(tenant.server, said["id"])
    digests = tenant.server.database.read_now(jobs.inputs, said["id"])
    assert sorted(digests) == ["data/below/train.jsonl", "metadata", "pickle"]
    assert tenant.http.get(f"/validations/{said['id']}").json()["state"] == "running"
    execution.end()
    over = tenant.http.get(f"/validations/{said['id']}").json()
    assert (over["state"], over["judgement"], over["last_seq"]) == ("done", "valid", 1)
    assert over["created_at"] <= over["started_at"] <= over["ended_at"]


@pytest.mark.parametrize(
    ("differently", "place"),
    [
        ({"name": ""}, "body.name"),
        ({"name": "a\nb"}, "body.name"),
        ({"name": "\ud800"}, "body.name"),
        ({"artifact": {}}, "body.artifact.pickle"),
        ({"options": {"timeout_s": 0}}, "body.options.timeout_s"),
        ({"options": {"timeout_s": 1e5}}, "body.options.timeout_s"),
        ({"options": {"timeout_s": 86_400}}, "body.options.timeout_s"),
        ({"options": {"max_context_tokens": 100_000_000}}, "body.options.max_context_tokens"),
        ({"options": {"split": "test"}}, "body.options.split"),
        ({"options": {"timeout": 1}}, "body.options.timeout"),
        ({"files": [{"path": "../x", "upload": "upl_a"}]}, "body.files.0.path"),
        ({"files": [{"path": "x", "upload": "upl_a"}] * 2}, "body.files"),
        ({"files": [{"path": "x", "upload": "upl_a"}, {"path": "x/y", "upload": "upl_a"}]}, "body.files"),
        ({"files": [{"path": "x/y/z", "upload": "upl_a"}, {"path": "x/y", "upload": "upl_a"}]}, "body.files"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_place(
    plain_tenant: Tenant, differently: dict[str, Any], place: str
) -> None:
    body = {"name": "n", "artifact": {"pickle": "upl_a", "metadata": "upl_a"}, **differently}
    # written by hand, since the client would not send what is no text
    sent = {"content": json.dumps(body), "headers": {"Content-Type": "application/json"}}
    answer = plain_tenant.http.post("/validations", **sent)  # type: ignore[arg-type]
    assert answer.status_code == 422
    assert answer.json()["error"]["code"] == "invalid-request"
    assert answer.json()["error"]["message"].startswith(f"{place}: ")


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000, b'{"name": NaN}'])
def test_a_body_that_is_no_request_is_refused(plain_tenant: Tenant, body: bytes) -> None:
    answer = plain_tenant.http.post("/validations", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422)
    assert answer.json()["error"]["code"] in ("bad-request", "invalid-request")


def test_an_upload_that_is_not_there_is_not_found(tenant: Tenant) -> None:
    body = asked(tenant)
    body["artifact"]["pickle"] = "upl_aaaaaaaaaaaaaaaaaaaa"
    answer = tenant.http.post("/validations", json=body)
    assert answer.status_code == 404


def test_an_upload_without_its_content_is_a_conflict(tenant: Tenant) -> None:
    body = asked(tenant)
    body["artifact"]["pickle"] = tenant.place(b"more")["id"]
    answer = tenant.http.post("/validations", json=body)
    assert answer.status_code == 409
    assert answer.json()["error"]["code"] == "upload-pending"


def test_another_tenants_upload_is_not_there(tenant: Tenant, other: Tenant) -> None:
    body = asked(tenant)
    body["artifact"]["pickle"] = other.upload(b"secret")
    assert tenant.http.post("/validations", json=body).status_code == 404


def test_a_key_has_no_more_jobs_than_it_may_have(server: ServerProcess) -> None:
    with server.tenant(max_jobs=1) as tenant:
        first = tenant.validation()
        answer = tenant.http.post("/validations", json=asked(tenant))
        assert answer.status_code == 429
        assert answer.json()["error"]["code"] == "quota"
        assert int(answer.headers["Retry-After"]) >= 1
        tenant.http.post(f"/validations/{first}/cancel")
        assert tenant.validation()


# -- lists ----------------------------------------------------------------------------------------------------


def test_a_list_is_newest_first_and_in_pages_that_join(tenant: Tenant) -> None:
    made = [tenant.validation(f"number {number}") for number in range(5)]
    seen: list[str] = []
    before: dict[str, str] = {}
    pages = 0
    while True:
        page = tenant.http.get("/validations", params={"limit": 2, **before}).json()
        seen += [item["id"] for item in page["items"]]
        pages += 1
        if page["next"] is None:
            break
        before = {"before": page["next"]}
    assert seen == made[::-1]
    assert pages == 3


def test_a_list_has_what_is_asked_for(tenant: Tenant) -> None:
    done, cancelled, queued = tenant.validation("One %"), tenant.validation("two_"), tenant.validation("three")
    Execution.of(tenant.server, done).end()
    tenant.http.post(f"/validations/{cancelled}/cancel")

    def listed(**asked: str) -> list[str]:
        answer = tenant.http.get("/validations", params=asked)
        assert answer.status_code == 200
        return [item["id"] for item in answer.json()["items"]]

    assert listed(state="done") == [done]
    assert listed(state="cancelled") == [cancelled]
    assert listed(judgement="valid") == [done]
    assert listed(judgement="invalid") == []
    assert listed(query="one") == [done]
    assert listed(query="%") == [done]
    assert listed(query="_") == [queued, cancelled, done]  # every id has one
    assert listed(query="") == [queued, cancelled, done]


@pytest.mark.parametrize(
    "query", ["state=gone", "judgement=good", "limit=0", "limit=201", "limit=x", "before=x", "before=x~y", "query=%00"]
)
def test_a_list_that_cannot_be_meant_is_refused(tenant: Tenant, query: str) -> None:
    answer = tenant.http.get(f"/validations?{query}")
    assert answer.status_code == 422
    assert answer.json()["error"]["message"].startswith("query.")


# -- what has come of it --------------------------------------------------------------------------------------


def test_results_are_given_as_they_were_left(plain_tenant: Tenant) -> None:
    validation = plain_tenant.validation()
    execution = Execution.of(plain_tenant.server, validation)
    results = {"verdict": b'{"format": 1}', "report": b"<!doctype html><script>1</script>", "logs": "ü\n".encode()}
    execution.end(results=results)
    facts = plain_tenant.http.get(f"/validations/{validation}").json()
    assert facts["has_verdict"] and facts["has_report"] and facts["has_logs"]
    types = {"verdict": "application/json", "report": "text/html; charset=utf-8", "logs": "text/plain; charset=utf-8"}
    for role, data in results.items():
        answer = plain_tenant.http.get(f"/validations/{validation}/{role}")
        assert answer.content == data
        assert answer.headers["Content-Type"] == types[role]
        assert answer.headers["Content-Length"] == str(len(data))
        # what a bundle has written must not act as a page of the service's
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        policy = answer.headers["Content-Security-Policy"]
        assert policy.startswith("sandbox ")
        assert "allow-same-origin" not in policy
        assert "default-src 'none'" in policy


def test_results_that_are_not_there_yet_are_a_conflict_and_later_not_found(tenant: Tenant) -> None:
    validation = tenant.validation()
    answer = tenant.http.get(f"/validations/{validation}/verdict")
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "not-over")
    tenant.http.post(f"/validations/{validation}/cancel")
    answer = tenant.http.get(f"/validations/{validation}/verdict")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not-found")


def test_a_result_whose_content_is_gone_is_told_as_such(plain_tenant: Tenant) -> None:
    validation = plain_tenant.validation()
    job = Execution.of(plain_tenant.server, validation).end(results={"logs": b"lost"})
    assert job.logs_blob is not None
    (plain_tenant.server.blob_folder / job.logs_blob[:2] / job.logs_blob).unlink()
    answer = plain_tenant.http.get(f"/validations/{validation}/logs")
    assert (answer.status_code, answer.json()["error"]["code"]) == (410, "gone")


# -- cancel and delete ----------------------------------------------------------------------------------------


def test_one_that_waits_is_cancelled_at_once(tenant: Tenant) -> None:
    validation = tenant.validation()
    answer = tenant.http.post(f"/validations/{validation}/cancel")
    assert (answer.status_code, answer.json()["state"]) == (200, "cancelled")
    again = tenant.http.post(f"/validations/{validation}/cancel")
    assert (again.status_code, again.json()) == (200, answer.json())


def test_one_that_runs_is_asked_to_stop(tenant: Tenant) -> None:
    validation = tenant.validation()
    execution = Execution.of(tenant.server, validation)
    answer = tenant.http.post(f"/validations/{validation}/cancel").json()
    assert (answer["state"], answer["cancelling"]) == ("running", True)
    assert tenant.server.database.run_now(jobs.renew, execution.claim, 60.0)
    execution.end()
    assert not tenant.http.get(f"/validations/{validation}").json()["cancelling"]


def test_only_one_that_is_over_can_be_deleted(tenant: Tenant) -> None:
    validation = tenant.validation()
    answer = tenant.http.delete(f"/validations/{validation}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "conflict")
    tenant.http.post(f"/validations/{validation}/cancel")
    answer = tenant.http.delete(f"/validations/{validation}")
    assert (answer.status_code, answer.content) == (204, b"")
    assert tenant.http.delete(f"/validations/{validation}").status_code == 404
    assert tenant.http.get(f"/validations/{validation}").status_code == 404


# -- tenants --------------------------------------------------------------------------------------------------

ASKED = [
    ("GET", "/validations/{id}"),
    ("GET", "/validations/{id}/events"),
    ("GET", "/validations/{id}/verdict"),
    ("GET", "/validations/{id}/report"),
    ("GET", "/validations/{id}/logs"),
    ("POST", "/validations/{id}/cancel"),
    ("DELETE", "/validations/{id}"),
]


@pytest.mark.parametrize(("method", "path"), ASKED)
def test_another_tenants_validation_is_not_there(tenant: Tenant, other: Tenant, method: str, path: str) -> None:
    validation = other.validation()
    theirs = tenant.http.request(method, path.format(id=validation))
    none = tenant.http.request(method, path.format(id=ABSENT))
    assert theirs.status_code == none.status_code == 404
    # nothing tells the two apart
    assert theirs.json()["error"] == none.json()["error"]
    assert other.http.get(f"/validations/{validation}").json()["state"] == "queued"


def test_lists_and_audits_have_nothing_of_another_tenant(tenant: Tenant, other: Tenant) -> None:
    other.validation("theirs")
    assert tenant.http.get("/validations").json() == {"items": [], "next": None}
    assert tenant.http.get("/audit").json()["items"] == []
    assert [key["id"] for key in tenant.http.get("/keys").json()["items"]] == [tenant.key_id]


def test_another_key_of_the_same_tenant_sees_the_same(tenant: Tenant) -> None:
    validation = tenant.validation()
    with tenant.another(scopes=("read",)) as reader:
        assert reader.http.get(f"/validations/{validation}").status_code == 200
        assert reader.http.post(f"/validations/{validation}/cancel").status_code == 403


def test_a_batch_is_no_validation(tenant: Tenant) -> None:
    job = tenant.server.database.run_now(
        jobs.submit, tenant_id=tenant.id, key_id=tenant.key_id, kind="batch", name="b", spec={}, inputs={}
    )
    for method, path in ASKED:
        assert tenant.http.request(method, path.format(id=job.id)).status_code == 404
    assert tenant.http.get("/validations").json()["items"] == []


@pytest.mark.parametrize("name", ["%00", "a b", "x" * 100, "..", "%2e%2e%2fx"])
def test_ids_that_cannot_be_are_no_ids(plain_tenant: Tenant, name: str) -> None:
    assert plain_tenant.http.get(f"/validations/{name}").status_code in (404, 422)
