"""The only way out of a sandboxed installation, spoken to as installers do."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import pytest

from runner.provision.hosts import Host, Hosts
from runner.provision.proxy import Proxy

pytestmark = pytest.mark.integration


@pytest.fixture(autouse=True)
def no_proxies_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


class Server:
    """Remembers the heads of requests, and answers each with what it is told to, then with `after`."""

    def __init__(self, answer: bytes, after: bytes = b"") -> None:
        self.answer = answer
        self.after = after
        self.heads: list[str] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.heads.append(head.decode())
        writer.write(self.answer)
        if self.after:
            await reader.readuntil(b"\n")
            writer.write(self.after)
        await writer.drain()
        writer.close()


@asynccontextmanager
async def serving(server: Server) -> AsyncIterator[Host]:
    listening = await asyncio.start_server(server, "127.0.0.1", 0)
    async with listening:
        yield "127.0.0.1", listening.sockets[0].getsockname()[1]


def proxy(*, named: Iterable[Host] = (), declared: Iterable[Host] = ()) -> Proxy:
    return Proxy(Hosts(named=frozenset(named), declared=frozenset(declared)), None)


async def ask(asked: Proxy, *pieces: bytes) -> bytes:
    """Speak to a proxy, each piece after an answer to the one before; return all that it said."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    serving_it = asyncio.ensure_future(asked(theirs))
    reader, writer = await asyncio.open_connection(sock=ours)
    said = b""
    for number, piece in enumerate(pieces):
        writer.write(piece)
        if number < len(pieces) - 1:
            said += await reader.readuntil(b"\r\n\r\n")
    said += await reader.read()
    writer.close()
    await serving_it
    theirs.close()
    return said


async def test_tunnel_to_a_named_host_carries_both_ways() -> None:
    server = Server(b"hello\n", after=b"bye")
    async with serving(server) as host:
        tunnel = f"CONNECT {host[0]}:{host[1]} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
        said = await ask(proxy(named=[host]), tunnel, b"first\r\n\r\nsecond\n")
    assert said == b"HTTP/1.1 200 Connection established\r\n\r\nhello\nbye"
    assert server.heads == ["first\r\n\r\n"]


async def test_plain_request_is_passed_on_as_its_server_wants_it_and_alone() -> None:
    server = Server(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    async with serving(server) as host:
        request = (
            f"GET http://{host[0]}:{host[1]}/simple/?x=1 HTTP/1.1\r\nHost: {host[0]}\r\n"
            "Proxy-Authorization: Basic x\r\nConnection: keep-alive\r\nAccept: */*\r\n\r\n"
        )
        said = await ask(proxy(named=[host]), request.encode())
    assert said.endswith(b"ok")
    assert server.heads == [f"GET /simple/?x=1 HTTP/1.1\r\nHost: {host[0]}\r\nAccept: */*\r\nConnection: close\r\n\r\n"]


@pytest.mark.parametrize("request_line", ["CONNECT {host} HTTP/1.1", "GET http://{host}/ HTTP/1.1"])
async def test_host_that_was_not_named_is_refused_and_told(request_line: str) -> None:
    server = Server(b"")
    async with serving(server) as (name, port):
        asked = proxy(named=[(name, port + 1)])
        said = await ask(asked, f"{request_line.format(host=f'{name}:{port}')}\r\n\r\n".encode())
    assert said.startswith(b"HTTP/1.1 403 ")
    assert asked.refused == {f"{name}:{port}": "it is neither an index nor a host of files that was named"}
    assert server.heads == []


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "169.254.169.254", "10.0.0.1"])
async def test_bundle_leads_nobody_to_this_machine_or_its_network(host: str) -> None:
    asked = proxy(declared=[(host.strip("[]"), 80)])
    said = await ask(asked, f"GET http://{host}/ HTTP/1.1\r\n\r\n".encode())
    assert said.startswith(b"HTTP/1.1 403 ")
    assert "only the bundle names it" in asked.refused[f"{host}:80"]


@pytest.mark.parametrize("host", ["localhost", "169.254.169.254"])
async def test_bundle_leads_nobody_there_by_the_callers_proxy_either(
    monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    server = Server(b"")
    async with serving(server) as (name, port):
        monkeypatch.setenv("http_proxy", f"http://{name}:{port}")
        asked = proxy(declared=[(host, 80)])
        said = await ask(asked, f"GET http://{host}/ HTTP/1.1\r\n\r\n".encode())
    assert said.startswith(b"HTTP/1.1 403 ")
    assert server.heads == []


async def test_host_that_does_not_answer_is_told_with_the_reason() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        host = closed.getsockname()
        asked = proxy(named=[host])
        said = await ask(asked, f"CONNECT 127.0.0.1:{host[1]} HTTP/1.1\r\n\r\n".encode())
    assert said.startswith(b"HTTP/1.1 502 ")
    assert asked.unreachable == {f"127.0.0.1:{host[1]}": "Connection refused"}


async def test_callers_own_proxy_is_gone_through_with_its_login(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(b"HTTP/1.1 200 fine\r\n\r\n", after=b"bye")
    async with serving(server) as (name, port):
        monkeypatch.setenv("https_proxy", f"http://me:w%40rd@{name}:{port}")
        tunnel = b"CONNECT packages.example:443 HTTP/1.1\r\n\r\n"
        said = await ask(proxy(named=[("packages.example", 443)]), tunnel, b"hello\n")
    assert said == b"HTTP/1.1 200 Connection established\r\n\r\nbye"
    # the login, decoded, as base64 has it
    (head,) = server.heads
    assert head.startswith("CONNECT packages.example:443 HTTP/1.1\r\n")
    assert "Proxy-Authorization: Basic bWU6d0ByZA==\r\n" in head


async def test_callers_own_proxy_gets_plain_requests_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    async with serving(server) as (name, port):
        monkeypatch.setenv("http_proxy", f"http://{name}:{port}")
        request = b"GET http://packages.example/simple/ HTTP/1.1\r\nHost: packages.example\r\n\r\n"
        await ask(proxy(named=[("packages.example", 80)]), request)
    assert server.heads[0].startswith("GET http://packages.example/simple/ HTTP/1.1\r\n")


async def test_what_the_callers_own_proxy_refuses_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(Server(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")) as (name, port):
        monkeypatch.setenv("https_proxy", f"http://{name}:{port}")
        asked = proxy(named=[("packages.example", 443)])
        said = await ask(asked, b"CONNECT packages.example:443 HTTP/1.1\r\n\r\n")
    assert said.startswith(b"HTTP/1.1 502 ")
    assert asked.unreachable["packages.example:443"].endswith("answers 407 Proxy Authentication Required")


async def test_host_that_the_caller_exempts_is_asked_directly(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    async with serving(server) as host:
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        request = f"GET http://127.0.0.1:{host[1]}/ HTTP/1.1\r\n\r\n"
        await ask(proxy(named=[host]), request.encode())
    assert server.heads[0].startswith("GET / HTTP/1.1\r\n")


@pytest.mark.parametrize("said", [b"nonsense\r\n\r\n", b"CONNECT  HTTP/1.1\r\n\r\n", b"GET /simple HTTP/1.1\r\n\r\n"])
async def test_what_is_no_request_to_a_proxy_is_refused(said: bytes) -> None:
    assert (await ask(proxy(), said)).startswith(b"HTTP/1.1 400 ")


async def test_number_of_refusals_that_are_remembered_is_bounded() -> None:
    asked = proxy()
    for port in range(1, 50):
        await ask(asked, f"CONNECT host.example:{port} HTTP/1.1\r\n\r\n".encode())
    assert len(asked.refused) == 32
