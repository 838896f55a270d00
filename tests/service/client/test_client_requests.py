"""The client's requests: what is asked again and what never is, and errors that say who has to act."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from runner.errors import RunnerError, UsageError
from runner.service.client import (
    ClientError,
    KeyRefusedError,
    NotFoundError,
    ServiceBusyError,
    ServiceClient,
    ServiceFaultError,
    ServiceRefusedError,
    ServiceUnreachableError,
)
from runner.service.client import client as client_module
from runner.service.client.wire import ArtifactUploads, NewKey, NewValidation
from tests.service.client.scripted import CUT, answer, failure, scripted

VALIDATION = {"id": "job_1", "name": "x", "state": "queued", "created_at": 1.0}
NEW = NewValidation(name="x", artifact=ArtifactUploads(pickle="up_1", metadata="up_2"))
KEY = "bmx_key_sesame"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "FIRST_PAUSE_S", 0.001)


async def test_a_request_has_the_key_and_its_answer_is_typed() -> None:
    async with scripted(answer(200, VALIDATION)) as server, ServiceClient(server.url + "/", KEY) as client:
        found = await client.validation("job_1")
    (seen,) = server.seen
    assert (seen.method, seen.target) == ("GET", "/api/v1/validations/job_1")
    assert seen.headers["authorization"] == f"Bearer {KEY}"
    assert (found.id, found.state, found.is_over) == ("job_1", "queued", False)
    assert KEY not in repr(client)


async def test_what_is_unknown_in_an_answer_is_ignored() -> None:
    async with scripted(answer(200, {**VALIDATION, "new": [1]})) as server, ServiceClient(server.url, KEY) as client:
        assert (await client.validation("job_1")).name == "x"


async def test_an_id_stays_one_segment_of_the_path() -> None:
    async with scripted(answer(200, VALIDATION)) as server, ServiceClient(server.url, KEY) as client:
        await client.validation("../keys?x")
    assert server.seen[0].target == "/api/v1/validations/..%2Fkeys%3Fx"


async def test_filters_that_are_not_given_are_not_sent() -> None:
    page = answer(200, {"items": [VALIDATION], "next": None})
    async with scripted(page) as server, ServiceClient(server.url, KEY) as client:
        found = await client.validations(state="queued", query="a b&c", limit=3)
    assert server.seen[0].target == "/api/v1/validations?state=queued&query=a+b%26c&limit=3"
    assert [item.id for item in found.items] == ["job_1"]


@pytest.mark.parametrize("trouble", [CUT, failure(503, "busy"), answer(502, b"<html>"), failure(429, "rate-limited")])
async def test_reading_is_tried_again(trouble: bytes) -> None:
    told: list[str] = []
    async with (
        scripted(trouble, trouble, answer(200, VALIDATION)) as server,
        ServiceClient(server.url, KEY, on_trouble=told.append) as client,
    ):
        assert (await client.validation("job_1")).id == "job_1"
    assert len(server.seen) == 3
    assert len(told) == 2
    assert all(text.endswith("; trying again") for text in told)


async def test_what_goes_on_failing_is_given_up() -> None:
    async with scripted() as server, ServiceClient(server.url, KEY) as client:
        with pytest.raises(ServiceUnreachableError, match="cannot be reached"):
            await client.me()
    assert len(server.seen) == client_module.ATTEMPTS


async def test_a_wait_that_is_too_long_is_not_waited_for() -> None:
    trouble = failure(429, "rate-limited", "too many requests.", Retry_After="100")
    async with scripted(trouble) as server, ServiceClient(server.url, KEY, patience_s=10) as client:
        with pytest.raises(ServiceBusyError, match=r"too many requests\."):
            await client.me()
    assert len(server.seen) == 1


@pytest.mark.parametrize("trouble", [CUT, failure(503, "busy"), failure(500, "internal"), answer(504)])
async def test_what_makes_a_job_or_a_key_is_never_sent_twice(trouble: bytes) -> None:
    async with scripted(trouble) as server, ServiceClient(server.url, KEY) as client:
        with pytest.raises(ClientError):
            await client.submit(NEW)
        assert len(server.seen) == 1
        server.answers.append(trouble)
        with pytest.raises(ClientError):
            await client.create_key(NewKey(name="x", scopes=["read"]))
    assert len(server.seen) == 2


async def test_who_is_turned_away_for_coming_too_often_has_made_nothing_and_comes_again() -> None:
    answers = (failure(429, "rate-limited", Retry_After="0"), answer(201, VALIDATION))
    async with scripted(*answers) as server, ServiceClient(server.url, KEY) as client:
        assert (await client.submit(NEW)).id == "job_1"
    assert [json.loads(seen.body)["name"] for seen in server.seen] == ["x", "x"]


async def test_a_job_is_submitted_again_when_nobody_listened() -> None:
    async with scripted() as server:
        url = server.url
    told: list[str] = []
    async with ServiceClient(url, KEY, on_trouble=told.append) as client:
        with pytest.raises(ServiceUnreachableError):
            await client.submit(NEW)
    assert len(told) == client_module.ATTEMPTS - 1


@pytest.mark.parametrize(
    ("said", "kind", "fault"),
    [
        (failure(401, "unauthorized"), KeyRefusedError, "usage"),
        (failure(403, "forbidden"), KeyRefusedError, "usage"),
        (failure(404, "not-found"), NotFoundError, "usage"),
        (failure(409, "conflict"), ServiceRefusedError, "usage"),
        (failure(413, "too-large"), ServiceRefusedError, "usage"),
        (failure(422, "invalid-request"), ServiceRefusedError, "usage"),
        (failure(429, "quota", Retry_After="1000"), ServiceBusyError, "host"),
        (failure(500, "internal"), ServiceFaultError, "host"),
        (answer(301, Location="https://elsewhere.example/"), ServiceRefusedError, "usage"),
        (answer(200, b"<html>hello</html>"), ServiceFaultError, "host"),
        (answer(200, {"id": 1}), ServiceFaultError, "host"),
    ],
)
async def test_an_error_says_who_has_to_act(said: bytes, kind: type[ClientError], fault: str) -> None:
    async with scripted(said) as server, ServiceClient(server.url, KEY) as client:
        with pytest.raises(kind) as caught:
            await client.cancel("job_1")
    assert type(caught.value) is kind
    assert (caught.value.fault, isinstance(caught.value, RunnerError)) == (fault, True)
    assert KEY not in str(caught.value)


async def test_an_error_has_the_services_words_and_the_requests_id() -> None:
    said = failure(409, "quota", "the key has 3 jobs already.", "Wait for one of them.")
    async with scripted(said) as server, ServiceClient(server.url, KEY) as client:
        with pytest.raises(ServiceRefusedError) as caught:
            await client.submit(NEW)
    error = caught.value
    assert str(error) == "the key has 3 jobs already. Wait for one of them."
    assert (error.status, error.answer_code, error.request_id, error.detail) == (
        409, "quota", "req-1", "request id: req-1",
    )  # fmt: skip


async def test_where_a_redirect_leads_is_said_and_not_gone_to() -> None:
    said = answer(308, Location="https://elsewhere.example/api")
    async with scripted(said) as server, ServiceClient(server.url, KEY) as client:
        with pytest.raises(ServiceRefusedError, match="leads to https://elsewhere"):
            await client.me()
    assert len(server.seen) == 1


# -- uploads ------------------------------------------------------------------------------------------------------


def place(url: str) -> bytes:
    return answer(201, {"id": "up_1", "url": f"{url}/put?signature=abc", "expires_at": 9.0})


STORED = answer(
    201, {"id": "up_1", "path": "a", "mime": "text/plain", "bytes": 3, "sha256": "0" * 64, "stored_at": 1.0}
)


@pytest.mark.parametrize("from_file", [True, False])
async def test_a_file_is_announced_and_sent_without_the_key(from_file: bool, tmp_path: Path) -> None:
    data = bytes(range(256)) * 3000
    (tmp_path / "file").write_bytes(data)
    counted: list[int] = []
    async with scripted() as server, ServiceClient(server.url, KEY) as client:
        server.answers += [place(server.url), STORED]
        source = tmp_path / "file" if from_file else data
        assert await client.upload("a/b.bin", source, mime="x/y", on_bytes=counted.append) == "up_1"
    asked, sent = server.seen
    assert json.loads(asked.body) == {
        "path": "a/b.bin", "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest(), "mime": "x/y",
    }  # fmt: skip
    assert (sent.method, sent.target, sent.body) == ("PUT", "/put?signature=abc", data)
    assert "authorization" not in sent.headers
    assert "transfer-encoding" not in sent.headers
    assert sum(counted) == len(data)


async def test_an_empty_file_is_sent_too() -> None:
    async with scripted() as server, ServiceClient(server.url, KEY) as client:
        server.answers += [place(server.url), STORED]
        await client.upload("a", b"")
    assert server.seen[1].headers["content-length"] == "0"


@pytest.mark.parametrize("trouble", [CUT, failure(503, "busy"), failure(409, "in-progress")])
async def test_an_upload_is_sent_again_from_its_beginning(trouble: bytes, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc" * 1000)
    counted: list[int] = []
    async with scripted() as server, ServiceClient(server.url, KEY) as client:
        server.answers += [place(server.url), trouble, STORED]
        assert await client.upload("a", tmp_path / "file", on_bytes=counted.append) == "up_1"
    assert [seen.body for seen in server.seen[1:]] == [b"abc" * 1000] * 2
    assert (sum(counted), min(counted)) == (3000, -3000)


async def test_an_upload_whose_answer_was_lost_is_there() -> None:
    async with scripted() as server, ServiceClient(server.url, KEY) as client:
        server.answers += [place(server.url), CUT, failure(409, "already-stored")]
        assert await client.upload("a", b"abc") == "up_1"


async def test_a_file_that_is_not_there_is_no_request(tmp_path: Path) -> None:
    async with scripted() as server, ServiceClient(server.url, KEY) as client:
        with pytest.raises(FileNotFoundError):
            await client.upload("a", tmp_path / "nowhere")
    assert server.seen == []


# -- how it is made -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url", ["", "host", "ftp://host", "http://", "http://host:x", "http://me:sesame@host", "http://h?a=1", "http://h#a"]
)
def test_what_is_no_url_of_a_service_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="URL") as caught:
        ServiceClient(url, KEY)
    assert "sesame" not in str(caught.value)


@pytest.mark.parametrize("key", ["", "sesame\n", "schlüssel"])
def test_what_cannot_be_a_key_is_refused_without_being_shown(key: str) -> None:
    with pytest.raises(UsageError, match="API key") as caught:
        ServiceClient("http://host", key)
    assert not key or key.strip() not in str(caught.value)


async def test_a_client_is_used_inside_of_its_context() -> None:
    with pytest.raises(RuntimeError, match="async with"):
        await ServiceClient("http://host", KEY).me()
