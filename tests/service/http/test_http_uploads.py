"""Uploads: a place with a key, the content with a signature, and nothing left of what did not come whole."""

from __future__ import annotations

import hashlib
import hmac

import pytest

from runner.service.database import audit, settings
from runner.service.http.state import URL_KEY
from tests.service.http.servers import ServerProcess, Tenant, count_uploads, eventually

DATA = b"some content\n" * 5_000
DIGEST = hashlib.sha256(DATA).hexdigest()


def stored(tenant: Tenant) -> int:
    return tenant.server.database.read_now(count_uploads, tenant.id)


def spooled(server: ServerProcess) -> list[str]:
    folders = (server.blob_folder / "incoming", server.settings.server.data / "spool")
    return [path.name for folder in folders if folder.is_dir() for path in folder.iterdir()]


def test_a_file_is_sent_to_a_signed_url_without_a_key(tenant: Tenant) -> None:
    place = tenant.place(DATA, "envs/one/env-cls.pkl", mime="application/octet-stream")
    del tenant.http.headers["Authorization"]
    answer = tenant.http.put(place["url"], content=DATA)
    assert answer.status_code == 201
    said = answer.json()
    assert said["id"] == place["id"]
    assert (said["bytes"], said["sha256"], said["path"]) == (len(DATA), DIGEST, "envs/one/env-cls.pkl")
    assert said["stored_at"] > 0
    assert stored(tenant) == 1


def test_an_empty_file_is_a_file(tenant: Tenant) -> None:
    assert tenant.upload(b"")
    assert stored(tenant) == 1


def test_a_large_file_arrives_in_pieces_of_unknown_length(tenant: Tenant) -> None:
    data = bytes(range(256)) * 4_096 * 8
    place = tenant.place(data)
    pieces = (data[start : start + 100_000] for start in range(0, len(data), 100_000))
    answer = tenant.http.put(place["url"], content=pieces)
    assert answer.status_code == 201, answer.text
    assert answer.json()["sha256"] == hashlib.sha256(data).hexdigest()


def test_the_same_content_twice_is_two_uploads(tenant: Tenant) -> None:
    assert tenant.upload(DATA, "a") != tenant.upload(DATA, "b")
    assert stored(tenant) == 2


@pytest.mark.parametrize(
    ("asked", "place"),
    [
        ({"path": "../x"}, "body.path"),
        ({"path": "/x"}, "body.path"),
        ({"path": "a//b"}, "body.path"),
        ({"path": "a/./b"}, "body.path"),
        ({"path": ""}, "body.path"),
        ({"path": "a\0b"}, "body.path"),
        ({"path": "a\nb"}, "body.path"),
        ({"path": "x" * 256}, "body.path"),
        ({"bytes": -1}, "body.bytes"),
        ({"bytes": "10"}, "body.bytes"),
        ({"sha256": "x" * 64}, "body.sha256"),
        ({"sha256": DIGEST.upper()}, "body.sha256"),
        ({"mime": "text"}, "body.mime"),
        ({"more": 1}, "body.more"),
    ],
)
def test_a_place_that_cannot_be_is_refused(plain_tenant: Tenant, asked: dict[str, object], place: str) -> None:
    answer = plain_tenant.http.post("/uploads", json={"path": "a", "bytes": 1, "sha256": DIGEST, **asked})
    assert answer.status_code == 422
    error = answer.json()["error"]
    assert error["code"] == "invalid-request"
    assert error["message"].startswith(f"{place}: ")


@pytest.mark.parametrize("path", ["a.b/c d", ".hidden", "..x/...", "ü/ß.jsonl", "a" * 255])
def test_paths_are_what_file_systems_take(plain_tenant: Tenant, path: str) -> None:
    assert plain_tenant.place(b"", path)


def test_a_file_larger_than_the_server_takes_is_refused_before_it_is_sent(strict_tenant: Tenant) -> None:
    answer = strict_tenant.http.post("/uploads", json={"path": "a", "bytes": (1 << 20) + 1, "sha256": DIGEST})
    assert answer.status_code == 422
    assert answer.json()["error"]["message"] == "body.bytes: a file may have 1048576 bytes, not 1048577."


def test_what_is_announced_counts_among_the_keys_bytes(server: ServerProcess) -> None:
    with server.tenant(max_bytes=2 * len(DATA)) as tenant:
        tenant.upload(DATA)
        place = tenant.place(DATA)
        answer = tenant.http.post("/uploads", json={"path": "b", "bytes": 1, "sha256": DIGEST})
        assert answer.status_code == 409
        assert answer.json()["error"]["code"] == "quota"
        # what was announced may still come
        assert tenant.http.put(place["url"], content=DATA).status_code == 201


# -- signatures -----------------------------------------------------------------------------------------------


def test_a_url_is_good_once(tenant: Tenant) -> None:
    place = tenant.place(DATA)
    assert tenant.http.put(place["url"], content=DATA).status_code == 201
    again = tenant.http.put(place["url"], content=DATA)
    assert again.status_code == 409
    assert again.json()["error"]["code"] == "already-stored"
    assert stored(tenant) == 1


def test_a_url_is_good_for_one_upload(tenant: Tenant) -> None:
    one, two = tenant.place(DATA), tenant.place(DATA)
    moved = one["url"].replace(one["id"], two["id"])
    answer = tenant.http.put(moved, content=DATA)
    assert answer.status_code == 403
    assert answer.json()["error"]["code"] == "bad-signature"
    assert stored(tenant) == 0


@pytest.mark.parametrize("change", ["later", "digit", "short", "none"])
def test_an_altered_url_is_refused(tenant: Tenant, change: str) -> None:
    url = str(tenant.place(DATA)["url"])
    base, _, query = url.partition("?")
    values = dict(part.split("=") for part in query.split("&"))
    if change == "later":
        values["expires"] = str(int(values["expires"]) + 1)
    elif change == "digit":
        values["signature"] = values["signature"][:-1] + ("0" if values["signature"][-1] != "0" else "1")
    elif change == "short":
        values["signature"] = values["signature"][:8]
    else:
        del values["signature"]
    answer = tenant.http.put(base, params=values, content=DATA)
    assert answer.status_code == (422 if change == "none" else 403)
    assert stored(tenant) == 0


def test_a_url_that_is_over_is_refused(tenant: Tenant) -> None:
    place = tenant.place(DATA)
    expires = "1000000000"
    secret = tenant.server.database.run_now(settings.secret, URL_KEY)
    signature = hmac.new(secret, f"upload\n{place['id']}\n{expires}".encode(), hashlib.sha256).hexdigest()
    url = place["url"].partition("?")[0]
    answer = tenant.http.put(url, params={"expires": expires, "signature": signature}, content=DATA)
    assert answer.status_code == 403
    assert answer.json()["error"]["code"] == "url-expired"
    assert stored(tenant) == 0


def test_a_key_does_not_replace_a_signature(tenant: Tenant) -> None:
    place = tenant.place(DATA)
    answer = tenant.http.put(f"/uploads/{place['id']}/content", content=DATA)
    assert answer.status_code == 422
    assert stored(tenant) == 0


def test_what_is_refused_for_its_signature_is_audited(tenant: Tenant) -> None:
    place = tenant.place(DATA)
    answer = tenant.http.put(place["url"][:-1] + "x", content=DATA)
    assert answer.status_code == 422
    answer = tenant.http.put(place["url"][:-4] + "0000", content=DATA)
    assert answer.status_code == 403
    # of whoever came nothing is known, so it is the operator's entry and no tenant's
    rows = tenant.server.database.read_now(audit.page, limit=20)
    (row,) = [row for row in rows if row.request_id == answer.headers["X-Request-Id"]]
    assert (row.outcome, row.tenant_id, row.object) == ("bad-signature", None, place["id"])


# -- what does not come whole ---------------------------------------------------------------------------------


def test_content_of_another_digest_leaves_nothing(tenant: Tenant) -> None:
    place = tenant.place(DATA)
    answer = tenant.http.put(place["url"], content=DATA[:-1] + b"!")
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "wrong-digest"
    assert (stored(tenant), spooled(tenant.server)) == (0, [])
    # the place is as it was
    assert tenant.http.put(place["url"], content=DATA).status_code == 201


@pytest.mark.parametrize("announced", [True, False])
def test_too_little_content_leaves_nothing(tenant: Tenant, announced: bool) -> None:
    place = tenant.place(DATA, sha256=hashlib.sha256(DATA[:100]).hexdigest())
    answer = tenant.http.put(place["url"], content=DATA[:100] if announced else iter([DATA[:100]]))
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "truncated"
    assert (stored(tenant), spooled(tenant.server)) == (0, [])


@pytest.mark.parametrize("announced", [True, False])
def test_too_much_content_leaves_nothing(tenant: Tenant, announced: bool) -> None:
    place = tenant.place(DATA)
    more = DATA + b"!"
    answer = tenant.http.put(place["url"], content=more if announced else iter([more]))
    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == "too-large"
    assert (stored(tenant), spooled(tenant.server)) == (0, [])


def test_a_client_that_goes_in_the_middle_leaves_nothing(tenant: Tenant) -> None:
    place = tenant.place(DATA)
    server = tenant.server
    target = place["url"].removeprefix(server.url)
    with server.connected() as connection:
        head = f"PUT {target} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(DATA)}\r\n\r\n"
        connection.sendall(head.encode() + DATA[:30_000])
        eventually(lambda: spooled(server))
    eventually(lambda: not spooled(server))
    assert stored(tenant) == 0
    assert tenant.http.put(place["url"], content=DATA).status_code == 201


def test_two_cannot_send_the_same_upload_at_once(tenant: Tenant) -> None:
    place = tenant.place(DATA)
    server = tenant.server
    target = place["url"].removeprefix(server.url)
    with server.connected() as connection:
        head = f"PUT {target} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(DATA)}\r\n\r\n"
        connection.sendall(head.encode() + DATA[:30_000])
        eventually(lambda: spooled(server))
        answer = tenant.http.put(place["url"], content=DATA)
        assert answer.status_code == 409
        assert answer.json()["error"]["code"] == "in-progress"
        connection.sendall(DATA[30_000:])
        assert connection.recv(100).startswith(b"HTTP/1.1 201 ")
    assert stored(tenant) == 1
