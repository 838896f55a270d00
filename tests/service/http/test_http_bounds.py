"""Bounds in size and time: of heads and bodies, of clients that are slow, and of how many there are at once."""

from __future__ import annotations

import contextlib
import json
import socket

import httpx
import pytest

from tests.service.http.servers import PATIENCE_S, QUICK_S, ServerProcess, Tenant, count_uploads, eventually


def answer_of(connection: socket.socket) -> tuple[int, dict[str, object]]:
    """Read one answer until the connection's end."""
    data = b""
    while piece := connection.recv(65_536):
        data += piece
    if not data:
        return 0, {}
    head, _, body = data.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


def code_of(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def test_a_head_that_is_too_long_is_refused(strict_tenant: Tenant) -> None:
    answer = strict_tenant.http.get("/me", headers={"X-Long": "x" * 4_000})
    assert code_of(answer) == (431, "headers-too-large")
    assert code_of(strict_tenant.http.get("/validations", params={"query": "x" * 4_000}))[0] == 431


def test_a_head_far_too_long_is_refused_by_the_parser(strict_server: ServerProcess) -> None:
    with strict_server.connected() as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nX-Long: " + b"x" * 60_000)
        status, body = answer_of(connection)
    assert status == 400
    assert body["error"]["code"] == "bad-request"  # type: ignore[index]


@pytest.mark.parametrize("sent", [b"\0\0\0", b"GET\r\n\r\n", b"GET / HTTP/x\r\n", b"\x16\x03\x01\x02\x00"])
def test_what_is_no_http_is_refused_in_the_same_shape(plain_server: ServerProcess, sent: bytes) -> None:
    with plain_server.connected() as connection:
        connection.sendall(sent + b"\r\n\r\n")
        status, body = answer_of(connection)
    assert status == 400
    assert body["error"]["code"] == "bad-request"  # type: ignore[index]


def test_a_body_that_is_too_long_is_refused(strict_tenant: Tenant) -> None:
    for content in (b"x" * 4_001, iter([b"x" * 3_000, b"x" * 3_000])):
        answer = strict_tenant.http.post("/uploads", content=content, headers={"Content-Type": "application/json"})
        assert code_of(answer) == (413, "too-large")


def test_an_unwanted_body_is_answered_and_cut_off(strict_tenant: Tenant) -> None:
    server = strict_tenant.server
    with server.connected() as connection:
        head = (
            f"POST /api/v1/uploads HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {strict_tenant.secret}\r\n"
            "Content-Type: application/json\r\nContent-Length: 1000000000\r\n\r\n"
        )
        connection.sendall(head.encode())
        # the answer comes at once; what is still sent is thrown away for a moment, and then nothing more is taken
        assert connection.recv(12) == b"HTTP/1.1 413"
        connection.sendall(b"x" * 1_000_000)
        with contextlib.suppress(ConnectionResetError):
            while connection.recv(65_536):
                pass


def test_a_request_whose_head_does_not_end_is_cut_off(hasty_server: ServerProcess) -> None:
    with hasty_server.connected() as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n")
        assert connection.recv(100) == b""


def test_a_connection_that_asks_nothing_is_cut_off(hasty_server: ServerProcess) -> None:
    with hasty_server.connected() as connection:
        assert connection.recv(100) == b""


def test_a_second_request_whose_head_does_not_end_is_cut_off(hasty_server: ServerProcess) -> None:
    with hasty_server.connected() as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET")
        status, _ = answer_of(connection)
    assert status == 200


def test_a_body_that_does_not_go_on_is_answered(hasty_tenant: Tenant) -> None:
    with hasty_tenant.server.connected() as connection:
        head = (
            f"POST /api/v1/uploads HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {hasty_tenant.secret}\r\n"
            "Content-Type: application/json\r\nContent-Length: 100\r\nConnection: close\r\n\r\n{"
        )
        connection.sendall(head.encode())
        status, body = answer_of(connection)
    assert status == 408
    assert body["error"]["code"] == "slow-body"  # type: ignore[index]


def test_an_upload_that_sends_nothing_is_ended_and_leaves_nothing(hasty_tenant: Tenant) -> None:
    server = hasty_tenant.server
    place = hasty_tenant.place(b"x" * 1000)
    target = place["url"].removeprefix(server.url)
    with server.connected() as connection:
        head = f"PUT {target} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\nConnection: close\r\n\r\n"
        connection.sendall(head.encode() + b"x" * 500)
        status, body = answer_of(connection)
    assert status == 408
    assert body["error"]["code"] == "slow-body"  # type: ignore[index]
    assert server.database.read_now(count_uploads, hasty_tenant.id) == 0
    eventually(lambda: not [*(server.blob_folder / "incoming").iterdir()])


def test_an_upload_that_trickles_is_waited_for(hasty_tenant: Tenant) -> None:
    server = hasty_tenant.server
    place = hasty_tenant.place(b"x" * 8)
    target = place["url"].removeprefix(server.url)
    with server.connected() as connection:
        head = f"PUT {target} HTTP/1.1\r\nHost: x\r\nContent-Length: 8\r\nConnection: close\r\n\r\n"
        connection.sendall(head.encode())
        # longer than a pause may be altogether, though no single pause is
        connection.settimeout(QUICK_S / 5)
        for _ in range(8):
            with pytest.raises(TimeoutError):
                connection.recv(1)
            connection.sendall(b"x")
        connection.settimeout(PATIENCE_S)
        assert connection.recv(100).startswith(b"HTTP/1.1 201 ")


def test_no_more_uploads_at_once_than_the_server_takes(strict_tenant: Tenant) -> None:
    server = strict_tenant.server
    places = [strict_tenant.place(b"x" * 1000) for _ in range(3)]
    targets = [place["url"].removeprefix(server.url) for place in places]
    with server.connected() as one, server.connected() as two:
        for connection, target in zip((one, two), targets, strict=False):
            head = f"PUT {target} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\nExpect: 100-continue\r\n\r\n"
            connection.sendall(head.encode())
            # says that the content is waited for
            assert connection.recv(100).startswith(b"HTTP/1.1 100 ")
        answer = strict_tenant.http.put(places[2]["url"], content=b"x" * 1000)
        assert code_of(answer) == (503, "busy")
        assert int(answer.headers["Retry-After"]) >= 1
        # requests of other kinds are none of it
        assert strict_tenant.http.get("/me").status_code == 200


def test_a_request_id_is_made_or_taken(plain_server: ServerProcess) -> None:
    assert plain_server.get("/healthz").headers["X-Request-Id"].startswith("req_")
    assert plain_server.get("/healthz", headers={"X-Request-Id": "my-own-id-1"}).headers["X-Request-Id"] == (
        "my-own-id-1"
    )
    for odd in ("short", "with space", "x" * 65, "a\tb" * 5):
        assert plain_server.get("/healthz", headers={"X-Request-Id": odd}).headers["X-Request-Id"].startswith("req_")


def test_every_answer_says_what_browsers_must_not_do_with_it(plain_server: ServerProcess) -> None:
    for path in ("/healthz", "/nothing", "/api/v1/me", "/openapi.json"):
        headers = plain_server.get(path).headers
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Content-Security-Policy"].startswith("default-src 'none'")
        assert headers["Cache-Control"] == "no-store"
        assert "server" not in headers


def test_what_is_not_there_is_told_in_the_same_shape(plain_server: ServerProcess) -> None:
    for method, path, status, code in (
        ("GET", "/nothing", 404, "not-found"),
        ("GET", "/api/v1/validations/", 404, "not-found"),
        ("PATCH", "/api/v1/validations", 405, "method-not-allowed"),
    ):
        answer = plain_server.request(method, path)
        assert code_of(answer) == (status, code)
        assert answer.json()["request_id"] == answer.headers["X-Request-Id"]


def test_other_clients_are_told_in_their_shapes(plain_server: ServerProcess) -> None:
    platform = plain_server.get("/v1/storage/upload-url").json()
    assert isinstance(platform["error"], str)
    openai = plain_server.get("/v1/models").json()
    assert openai["error"]["type"] == "invalid_request_error"
    assert openai["error"]["message"]
