"""A gateway behind another server: it answers as at its own address, and notices when its clients go."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import pytest
import uvicorn

from runner.gateway.app import Opening
from runner.gateway.exchange import Upstream
from runner.gateway.gateway import Gateway
from runner.limits import Limits
from tests.unit.gateway_lab import Asked, Lab, Wire, chunk, lab


class QuietServer(uvicorn.Server):
    """Leaves the process's signals alone."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.asynccontextmanager
async def hosting(gateway: Gateway) -> AsyncIterator[str]:
    """Have the gateway within a server of somebody else's; give its origin."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        config = uvicorn.Config(gateway.serve, lifespan="off", log_config=None, ws="none", interface="asgi3")
        server = QuietServer(config)
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            await serving


@pytest.fixture
async def hosted() -> AsyncIterator[Lab]:
    """A lab whose clients come by way of another server."""
    async with lab() as made, hosting(made.gateway) as origin:
        yield replace(made, origin=origin)


async def test_whole_answers_streams_and_errors_are_those_of_its_own_address(hosted: Lab) -> None:
    session = hosted.open()
    assert (await hosted.post(session)).json["choices"][0]["message"]["content"] == "42"
    streamed = await hosted.post(session, {"model": "some-model", "messages": [], "stream": True})
    assert streamed.events[-1] == "[DONE]"
    assert (await hosted.post(session, key="another")).code == "invalid_session_key"
    assert (await hosted.post(session, path="/somewhere")).status == 404
    collected = await hosted.ask("POST", f"{session.path}/collect", key=session.key)
    assert collected.json["num_calls"] == 2
    assert (await hosted.post(session)).code == "session_over"


async def test_one_connection_is_used_again_and_again(hosted: Lab) -> None:
    session = hosted.open()
    body = json.dumps({"model": "some-model", "messages": []}).encode()
    head = f"POST {session.path}/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {session.key}\r\n"
    request = f"{head}content-length: {len(body)}\r\n\r\n".encode() + body
    async with hosted.client() as client:
        for _ in range(20):
            client.got = b""
            await client.send(request)
            await client.until(b'"usage"')
            assert client.got.startswith(b"HTTP/1.1 200")
    assert session.num_calls == 20
    assert [trace.error for trace in hosted.traces] == [None] * 20


@pytest.mark.parametrize("begun", [False, True], ids=["before the answer", "in the middle of a stream"])
async def test_a_client_that_goes_takes_its_call_along(begun: bool, hosted: Lab) -> None:
    gone = asyncio.Event()

    async def hang(asked: Asked, wire: Wire) -> None:
        if begun:
            await wire.begin()
            await wire.event(chunk("4"))
        await wire.until_gone()
        gone.set()

    hosted.endpoint.doing = hang
    session = hosted.open()
    async with hosted.asking(session, {"model": "some-model", "messages": [], "stream": begun}) as client:
        await hosted.endpoint.until(lambda: len(hosted.endpoint.asked) == 1)
        if begun:
            await client.until(b"data: ")
    async with asyncio.timeout(20):
        await gone.wait()
    await hosted.keep_busy()
    assert [trace.error for trace in hosted.traces] == ["client_gone"]


async def test_a_session_that_ends_tells_the_clients_of_its_calls(hosted: Lab) -> None:
    async def hang(asked: Asked, wire: Wire) -> None:
        await wire.until_gone()

    hosted.endpoint.doing = hang
    session = hosted.open()
    async with hosted.asking(session) as client:
        await hosted.endpoint.until(lambda: len(hosted.endpoint.asked) == 1)
        await session.close()
        assert (await client.answer()).code == "session_over"


async def test_a_session_that_is_opened_over_http_ends_by_itself_when_the_gateway_says_so() -> None:
    async def admit(opening: Opening) -> Upstream | None:
        return made.gateway.upstream(made.endpoint.url, made.keys)

    async with lab() as made:
        gateway = Gateway(Limits(), clean=str, admit=admit, session_s=0.05)
        try:
            async with hosting(gateway) as origin:
                there = replace(made, gateway=gateway, origin=origin)
                body = json.dumps({"model": "some-model"}).encode()
                opened = await there.ask("PUT", "/v1/sessions/one", key="any", body=body)
                assert opened.status == 200
                async with asyncio.timeout(20):
                    while gateway.sessions:
                        await asyncio.sleep(0.01)
        finally:
            await gateway.aclose()
