"""Keys of bindings, at servers that the gateway stands for, and at the addresses of other sessions."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Mapping

import pytest
import uvloop

from runner.gateway.app import Opening
from runner.gateway.authority import Authority
from runner.gateway.exchange import ModelCall
from tests.unit.gateway_lab import SECRET, Answered, Asked, Lab, RawClient, Wire, lab, socket_pair


@contextlib.asynccontextmanager
async def intercepted(made: Lab, origin: str, authority: Authority | None = None) -> AsyncIterator[RawClient]:
    """Connect to an origin, and find the gateway there."""
    here, there = socket_pair()
    host = origin.split("://")[1].partition(":")[0]
    tls = None if authority is None else authority.server(host)
    serving = asyncio.ensure_future(made.gateway.handler(origin, tls)(there))
    trust = None if authority is None else ssl.create_default_context(cadata=authority.certificate.decode())
    name = None if authority is None else host
    reader, writer = await asyncio.open_connection(sock=here, ssl=trust, server_hostname=name)
    try:
        yield RawClient(reader, writer)
    finally:
        writer.transport.abort()
        await serving
        there.close()


async def ask(
    client: RawClient, method: str, target: str, key: str, body: bytes = b"", headers: Mapping[str, str] | None = None
) -> Answered:
    lines = [f"{method} {target} HTTP/1.1", "host: anything", f"authorization: Bearer {key}", "connection: close"]
    lines += [f"content-length: {len(body)}", *(f"{name}: {value}" for name, value in (headers or {}).items())]
    await client.send("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
    return await client.answer()


async def test_a_binding_s_call_to_its_own_server_goes_there_with_its_own_credential() -> None:
    async with lab() as made:
        session = made.open("judge", rollout_id="r", binding="judge", at=[made.endpoint.url])
        origin = made.endpoint.url.removesuffix("/v1")
        async with intercepted(made, origin) as client:
            answer = await ask(client, "POST", "/v1/chat/completions?version=2", session.key, b'{"model": "j"}')
        assert answer.status == 200
        [asked] = made.endpoint.asked
        assert asked.target == "/v1/chat/completions?version=2"
        assert asked.headers["authorization"] == f"Bearer {SECRET}"
        [call] = made.keys.calls
        assert (call.binding, call.route, call.rollout_id) == ("judge", "chat/completions", "r")
        assert call.url == f"{made.endpoint.url}/chat/completions?version=2"


class Answering:
    """Answers what it was asked, in the place of a server elsewhere."""

    status = 200
    headers = (("content-type", "application/json"),)

    def __init__(self) -> None:
        self.calls: list[ModelCall] = []

    async def send(self, call: ModelCall) -> Answering:
        self.calls.append(call)
        return self

    async def body(self) -> AsyncIterator[bytes]:
        yield b'{"object": "list"}'

    async def aclose(self) -> None: ...


async def test_tls_to_an_intercepted_server_ends_at_the_gateway() -> None:
    async with lab() as made:
        upstream = Answering()
        session = made.open("judge", upstream=upstream, binding="judge", at=["https://judge.example/v1"])
        async with intercepted(made, "https://judge.example", Authority()) as client:
            answer = await ask(client, "GET", "/v1/models", session.key)
        assert answer.json == {"object": "list"}
        assert [call.url for call in upstream.calls] == ["https://judge.example/v1/models"]


@pytest.mark.parametrize("tls", [True, False])
async def test_a_client_that_does_not_trust_the_gateway_or_speaks_plain_http_is_let_go(tls: bool) -> None:
    async with lab() as made:
        here, there = socket_pair()
        serving = asyncio.ensure_future(
            made.gateway.handler("https://j.example", Authority().server("j.example"))(there)
        )
        if tls:
            with pytest.raises(ssl.SSLCertVerificationError):
                await asyncio.open_connection(sock=here, ssl=ssl.create_default_context(), server_hostname="j.example")
        else:
            _, writer = await asyncio.open_connection(sock=here)
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            await serving
            writer.transport.abort()
        await serving
        there.close()


@pytest.mark.parametrize(
    "target",
    [
        "/v10/chat/completions",
        "/v1/../admin",
        "/v1/%2e%2e/admin",
        "/v1%2fchat",
        "/v2/chat/completions",
        "/",
        "//v1/chat/completions",
        "http://elsewhere.example/v1/chat/completions",
        "*",
    ],
)
async def test_a_binding_s_key_is_good_at_and_below_its_urls_alone(target: str) -> None:
    async with lab() as made:
        session = made.open("judge", binding="judge", at=[made.endpoint.url])
        async with intercepted(made, made.endpoint.url.removesuffix("/v1")) as client:
            answer = await ask(client, "POST", target, session.key, b"{}")
        assert (answer.status, answer.code) == (403, "invalid_session_key")
        assert made.endpoint.asked == []


async def test_a_rollout_s_own_key_is_good_at_no_intercepted_server() -> None:
    async with lab() as made:
        session = made.open()
        async with intercepted(made, made.endpoint.url.removesuffix("/v1")) as client:
            answer = await ask(client, "POST", "/v1/chat/completions", session.key, b"{}")
        assert (answer.status, answer.code) == (403, "invalid_session_key")


@pytest.mark.parametrize(("method", "status"), [("GET", 200), ("POST", 200), ("DELETE", 405), ("PUT", 405)])
async def test_any_path_below_can_be_read_and_posted_to_and_nothing_else(method: str, status: int) -> None:
    async def echo(asked: Asked, wire: Wire) -> None:
        await wire.whole(asked.body[::-1], content_type="application/octet-stream")

    async with lab() as made:
        made.endpoint.doing = echo
        session = made.open("judge", binding="judge", at=[made.endpoint.url])
        body = b"" if method == "GET" else b"\x00\xff no json"
        async with intercepted(made, made.endpoint.url.removesuffix("/v1")) as client:
            answer = await ask(client, method, "/v1/audio/speech", session.key, body)
        assert answer.status == status
        if status == 200:
            assert answer.body == body[::-1]
            assert answer.headers["content-type"] == "application/octet-stream"


async def test_whatever_stands_in_a_query_a_redirect_is_followed_or_refused_in_words() -> None:
    async def moved(_: Asked, wire: Wire) -> None:
        await wire.whole(b"", 307, headers=[("location", "http://elsewhere.example/")])

    async with lab() as made:
        made.endpoint.doing = moved
        session = made.open("judge", binding="judge", at=[made.endpoint.url])
        async with intercepted(made, made.endpoint.url.removesuffix("/v1")) as client:
            answer = await ask(client, "GET", "/v1/find?a\\b=%2f..|", session.key)
        assert answer.code == "upstream_redirect"


async def test_a_binding_that_asks_at_a_rollout_s_address_is_asked_at_that_rollout_s_server() -> None:
    async with lab() as made:
        rollout = made.open("r")
        judge = made.open("judge", binding="judge", at=[rollout.path], budget=None)
        answer = await made.post(judge, {"model": "j", "messages": []}, path=f"{rollout.path}/chat/completions")
        assert answer.status == 200
        [call] = made.keys.calls
        assert (call.session, call.binding, call.url) == (
            "judge",
            "judge",
            f"{made.endpoint.url}/chat/completions",
        )
        assert (rollout.num_calls, judge.num_calls) == (0, 1)
        # it is no key of that session beyond that
        assert (await made.ask("POST", f"{rollout.path}/collect", key=judge.key)).code == "not_found"
        assert (await made.ask("DELETE", rollout.path, key=judge.key)).code == "not_found"
        other = made.open("other")
        elsewhere = await made.post(judge, {"model": "j"}, path=f"{other.path}/chat/completions")
        assert elsewhere.code == "invalid_session_key"
        await rollout.close()
        late = await made.post(judge, {"model": "j"}, path=f"{rollout.path}/chat/completions")
        assert (late.status, late.code) == (401, "invalid_session_key")


async def test_a_closed_gateway_serves_no_socket() -> None:
    async with lab() as made:
        handler = made.gateway.handler(None)
        await made.gateway.aclose()
        here, there = socket_pair()
        await handler(there)
        there.close()
        assert await asyncio.get_running_loop().sock_recv(here, 10) == b""
        here.close()
        with pytest.raises(RuntimeError, match="closed"):
            await made.gateway.listen()


async def test_whoever_waits_for_a_socket_to_end_can_stop_waiting_and_it_ends() -> None:
    async with lab() as made:
        here, there = socket_pair()
        serving = asyncio.ensure_future(made.gateway.handler(None)(there))
        reader, writer = await asyncio.open_connection(sock=here)
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        await reader.readuntil(b"}}")
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving
        assert await reader.read() == b""
        assert there.fileno() == -1
        writer.close()


async def test_closing_while_a_client_shakes_hands_ends() -> None:
    async with lab() as made:
        here, there = socket_pair()
        serving = asyncio.ensure_future(
            made.gateway.handler("https://j.example", Authority().server("j.example"))(there)
        )
        await asyncio.sleep(0)
        await made.gateway.aclose()
        await asyncio.wait([serving])
        there.close()
        here.close()


async def test_many_sockets_at_once_are_served_and_gone_afterwards() -> None:
    async with lab() as made:
        session = made.open()
        origin = made.origin.removeprefix("http://").split(":")
        connections = [socket.create_connection((origin[0], int(origin[1]))) for _ in range(200)]
        answers = await asyncio.gather(*(made.post(session) for _ in range(100)))
        assert {answer.status for answer in answers} == {200}
        for connection in connections:
            connection.close()
        assert session.num_calls == 100


async def test_closing_leaves_no_task_behind_whatever_was_under_way() -> None:
    before = asyncio.all_tasks()
    async with lab() as made:

        async def hang(_: Asked, wire: Wire) -> None:
            await wire.until_gone()

        made.endpoint.doing = hang
        session, other = made.open(ttl_s=600), made.open("other")
        async with made.asking(session) as one, made.client() as half, made.client(), made.asking(other) as two:
            await half.send(b"POST /sessions/r/v1/chat/completions HTTP/1.1\r\n")
            await made.endpoint.until(lambda: len(made.endpoint.asked) == 2)
            ending = asyncio.ensure_future(other.close())
            await made.gateway.aclose()
            await made.gateway.aclose()
            await ending
            for client in (one, two):
                await client.answer()
        await made.endpoint.until(lambda: made.endpoint.open == 0)
    assert asyncio.all_tasks() == before


async def test_whoever_decides_who_may_open_a_session_does_not_hold_up_the_end() -> None:
    asked = asyncio.Event()

    async def admit(opening: Opening) -> None:
        asked.set()
        await asyncio.Event().wait()

    async with lab(admit=admit) as made, made.client() as client:
        head = "PUT /v1/sessions/x HTTP/1.1\r\nhost: x\r\nauthorization: Bearer x\r\n"
        await client.send(f'{head}content-length: 14\r\n\r\n{{"model": "m"}}'.encode())
        await asked.wait()
        await made.gateway.aclose()


@pytest.fixture(scope="module")
def another_loop() -> None:
    """Let it open what it keeps for ever."""
    uvloop.run(asyncio.sleep(0))


def test_another_event_loop_serves_the_same(another_loop: None) -> None:
    uvloop.run(test_tls_to_an_intercepted_server_ends_at_the_gateway())
