"""Files of the published client: where it may put them, and what it is told."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from tests.service.platform.platform_server import PATIENCE_S, Served, upload

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

UPLOAD_URL = "/v1/storage/upload-url"


def asked(client: httpx.Client, path: str = "envs/a/env-cls.pkl", **more: Any) -> httpx.Response:
    return client.get(UPLOAD_URL, params={"path": path, "mimeType": "application/octet-stream", **more})


def test_an_upload_url_takes_the_bytes_without_a_key_and_the_path_stays_the_clients_own(
    client: httpx.Client, served: Served
) -> None:
    answer = asked(client)
    assert answer.status_code in (200, 201)
    place = answer.json()
    assert place["uploadUrl"].startswith(f"{served.url}/")
    assert place["blobPath"] == "envs/a/env-cls.pkl"
    assert datetime.fromisoformat(place["expiresAt"]) > datetime.now(UTC)
    assert place["willOverwrite"] is False
    answer = httpx.put(
        place["uploadUrl"],
        content=b"pickle",
        headers={"Content-Type": "application/octet-stream", "x-ms-blob-type": "BlockBlob"},
        trust_env=False,
        timeout=PATIENCE_S,
    )
    assert answer.status_code < 400
    assert asked(client).json()["willOverwrite"] is True


def test_a_url_is_good_once_and_for_its_own_file(client: httpx.Client) -> None:
    first, second = asked(client, "once/a.json").json(), asked(client, "once/b.json").json()
    assert put(first["uploadUrl"]) < 400
    assert put(first["uploadUrl"]) == 409
    path, _, query = first["uploadUrl"].partition("?")
    assert put(f"{second['uploadUrl'].partition('?')[0]}?{query}") == 403
    assert put(path) >= 400


def put(url: str) -> int:
    return httpx.put(
        url, content=b"{}", headers={"Content-Type": "application/json"}, trust_env=False, timeout=PATIENCE_S
    ).status_code


@pytest.mark.parametrize("path", ["", "/etc/passwd", "a//b", "a/../b", "a/./b", "a/b c", "a/ü", "a/b/", "x" * 2000])
def test_a_path_that_no_file_can_have_is_refused_in_the_clients_own_shape(path: str, client: httpx.Client) -> None:
    answer = asked(client, path)
    assert 400 <= answer.status_code < 500
    assert isinstance(answer.json()["error"], str)


@pytest.mark.parametrize(
    ("secret", "status"), [(None, 401), ("bmx_nobody_has_this", 401), ("reader", 403)], ids=["none", "unknown", "reads"]
)
def test_who_may_not_is_told_so_in_the_clients_own_shape(secret: str | None, status: int, served: Served) -> None:
    shown = served.key(scopes=["read"]) if secret == "reader" else secret
    with served.client(shown) as client:
        answer = asked(client)
    assert answer.status_code == status
    assert isinstance(answer.json()["error"], str)


def test_tenants_do_not_see_each_others_files(client: httpx.Client, served: Served) -> None:
    upload(client, "shared/name.json", b"{}", "application/json")
    with served.client(served.key(tenant="other")) as other:
        assert asked(other, "shared/name.json").json()["willOverwrite"] is False


def test_the_session_of_a_login_is_the_key_itself(client: httpx.Client, secret: str, served: Served) -> None:
    answer = client.get("/api/auth/token")
    assert answer.status_code == 200
    assert answer.json() == {"token": secret}
    with served.client("bmx_nobody_has_this") as nobody:
        refused = nobody.get("/api/auth/token")
    assert refused.status_code == 401
    assert isinstance(refused.json()["error"], str)
