"""For whoever runs the service: probes, counters, the log, and an end in good order."""

from __future__ import annotations

import hashlib
import signal
from pathlib import Path

import httpx
import pytest

from runner.service.database import settings
from runner.service.http.state import URL_KEY
from runner.service.settings import LimitSettings
from tests.service.http.servers import PATIENCE_S, ServerProcess, Tenant, eventually, hasty, running
from tests.service.nursery import Nursery


def test_a_server_lives_and_is_ready(server: ServerProcess) -> None:
    assert server.get("/healthz").json() == {"status": "ok"}
    answer = server.get("/readyz")
    assert answer.status_code == 200
    assert answer.json() == {"status": "ready", "checks": {"database": "ok", "blobs": "ok"}}


def test_counters_have_routes_and_jobs_and_nothing_of_a_tenant(server: ServerProcess, tenant: Tenant) -> None:
    validation = tenant.validation()
    tenant.http.get(f"/validations/{validation}")
    answer = server.get("/metrics")
    assert answer.headers["Content-Type"].startswith("text/plain; version=")
    text = answer.text
    assert 'benchmax_http_requests_total{method="GET",route="/api/v1/validations/{validation_id}",status="200"}' in text
    assert 'benchmax_jobs{kind="validation",state="queued"}' in text
    assert "benchmax_uploaded_bytes_total" in text
    for name in (tenant.id, tenant.name, tenant.key_id, validation):
        assert name not in text


def test_the_log_has_requests_and_no_secret(nursery: Nursery, folder: Path) -> None:
    with running(nursery, folder) as server:
        with server.tenant() as tenant:
            data = b"content"
            place = tenant.place(data)
            signature = place["url"].rpartition("signature=")[2]
            tenant.http.put(place["url"], content=data)
            made = tenant.http.post("/keys", json={"name": "another", "scopes": ["read"]}).json()
            # in places where none belongs
            tenant.http.get(f"/validations/{tenant.secret}")
            tenant.http.get(f"/validations?query={tenant.secret}")
            tenant.http.post("/validations", json={"name": tenant.secret, tenant.secret: tenant.secret})
            tenant.http.get("/me", headers={"Authorization": f"Bearer {tenant.secret}x"})
            answer = tenant.http.get("/me", headers={"X-Request-Id": "looked-for-1"})
            assert answer.status_code == 200
            secrets = [tenant.secret, made["secret"], signature]
            key_id = tenant.key_id
            signing_key = _signing_key(server)
        assert server.end() == 0
        text = server.log_path.read_text("utf-8")
        (line,) = server.logged("looked-for-1")
    assert (line["event"], line["status"], line["path"], line["key"]) == ("request", 200, "/api/v1/me", key_id)
    assert line["seconds"] >= 0
    for secret in (*secrets, signing_key):
        assert secret not in text
        assert secret[-20:] not in text


def _signing_key(server: ServerProcess) -> str:
    return server.database.run_now(settings.secret, URL_KEY).hex()


# -- the end --------------------------------------------------------------------------------------------------


def test_a_server_with_nothing_to_do_ends_at_once(nursery: Nursery, folder: Path) -> None:
    with running(nursery, folder) as server:
        assert server.end() == 0
        assert [line["event"] for line in server.log()][-2:] == ["draining", "ended"]
        with pytest.raises(httpx.ConnectError):
            server.get("/healthz")


def test_a_draining_server_finishes_what_is_under_way(nursery: Nursery, folder: Path) -> None:
    with running(nursery, folder) as server, server.tenant() as tenant:
        data = b"x" * 100_000
        place = tenant.place(data)
        validation = tenant.validation()
        target = place["url"].removeprefix(server.url)
        with (
            server.connected() as sending,
            tenant.http.stream("GET", f"/validations/{validation}/events") as stream,
        ):
            lines = stream.iter_lines()
            assert next(lines) == ": alive"
            head = f"PUT {target} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n"
            sending.sendall(head.encode() + data[:50_000])
            eventually(lambda: [*(server.blob_folder / "incoming").iterdir()])
            server.process.send_signal(signal.SIGTERM)
            # the stream ends with the wish to come back
            assert "retry: 1000" in [*lines]
            assert server.process.poll() is None
            sending.sendall(data[50_000:])
            answer = b""
            while piece := sending.recv(65_536):
                answer += piece
            assert answer.startswith(b"HTTP/1.1 201 ")
            assert hashlib.sha256(data).hexdigest().encode() in answer
        assert server.process.wait(PATIENCE_S) == 0
    # a stream that has come back to another server goes on
    with running(nursery, folder) as again, httpx.Client(timeout=PATIENCE_S) as client:
        url = f"{again.url}/api/v1/validations/{validation}"
        shown = {"Authorization": f"Bearer {tenant.secret}"}
        client.post(f"{url}/cancel", headers=shown)
        assert "event: end" in client.get(f"{url}/events", headers=shown).text


@pytest.mark.parametrize("hurry", [True, False])
def test_what_does_not_end_in_time_is_cut_off(nursery: Nursery, folder: Path, hurry: bool) -> None:
    limits = LimitSettings() if hurry else hasty()
    with running(nursery, folder, limits=limits) as server, server.tenant() as tenant:
        place = tenant.place(b"x" * 1000)
        target = place["url"].removeprefix(server.url)
        with server.connected() as sending:
            head = f"PUT {target} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\nExpect: 100-continue\r\n\r\n"
            sending.sendall(head.encode())
            assert sending.recv(100).startswith(b"HTTP/1.1 100 ")
            server.process.send_signal(signal.SIGTERM)
            if hurry:
                eventually(lambda: any(line["event"] == "draining" for line in server.log()))
                server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(PATIENCE_S) == 0
        assert not [*(server.blob_folder / "incoming").iterdir()]


def test_a_draining_server_says_so_and_begins_nothing(nursery: Nursery, folder: Path) -> None:
    with running(nursery, folder) as server, server.tenant() as tenant:
        place = tenant.place(b"x" * 1000)
        target = place["url"].removeprefix(server.url)
        with server.connected() as sending:
            head = f"PUT {target} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\nExpect: 100-continue\r\n\r\n"
            sending.sendall(head.encode())
            assert sending.recv(100).startswith(b"HTTP/1.1 100 ")
            server.process.send_signal(signal.SIGTERM)
            eventually(lambda: any(line["event"] == "draining" for line in server.log()))
            answer = server.get("/readyz")
            assert (answer.status_code, answer.json()["status"]) == (503, "draining")
            assert server.get("/healthz").status_code == 200
            refused = tenant.http.get("/me")
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "draining")
            assert refused.headers["Retry-After"]
            sending.sendall(b"x" * 1000)
            assert sending.recv(100).startswith(b"HTTP/1.1 201 ")
        assert server.process.wait(PATIENCE_S) == 0


def test_a_store_that_does_not_work_is_not_ready(nursery: Nursery, folder: Path) -> None:
    with running(nursery, folder) as server:
        incoming = server.blob_folder / "incoming"
        assert server.get("/readyz").status_code == 200
        incoming.rmdir()
        eventually(lambda: server.get("/readyz").status_code != 200)
        answer = server.get("/readyz")
        assert answer.status_code == 503
        assert answer.json() == {"status": "unready", "checks": {"database": "ok", "blobs": "failed"}}
        assert str(folder) not in answer.text
        assert any(line["event"] == "unready" and str(folder) in line["error"] for line in server.log())
        # it lives all the same, and is ready again when the store works
        assert server.get("/healthz").status_code == 200
        incoming.mkdir()
        eventually(lambda: server.get("/readyz").status_code == 200)
