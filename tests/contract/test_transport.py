"""What is shared below the clients, and what is not."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmax.auth import (
    ModelRequestContext,
    StaticBearerAuth,
    create_async_openai_client,
    create_openai_client,
)
from benchmax.envs import Example, RolloutRequest
from benchmax.transport import aclose_transports, async_pool, rollout_client, sync_pool
from benchmax.transport.http_family import environment_proxy, openai_family
from tests.contract.loopback import ModelServer, Received, Reply, call, completion, running_server
from tests.contract.test_base_env_loop import PROMPT, Env, WithTool

FIXTURES = Path(__file__).parent.parent / "fixtures" / "contract"
MESSAGES: Any = PROMPT


class PerRollout:
    """Gives every rollout headers of its own."""

    async def headers_for_request(self, context: ModelRequestContext) -> Mapping[str, str]:
        return {"Authorization": f"Bearer for-{context.rollout_id}"}


def requests(server: ModelServer, count: int, *, name: str = "r") -> list[RolloutRequest[Any]]:
    example = Example("e", {"prompt_messages": PROMPT})
    return [RolloutRequest(f"{name}{n}", example, f"{name}{n}", server.url, PerRollout()) for n in range(count)]


async def test_rollouts_of_one_loop_share_connections(model_server: ModelServer) -> None:
    for _ in range(5):
        await Env().run_group(requests(model_server, 1))
    assert model_server.connections == 1
    await Env().run_group(requests(model_server, 8))
    await Env().run_group(requests(model_server, 8))
    assert model_server.connections <= 8


async def test_no_request_waits_for_a_connection(model_server: ModelServer) -> None:
    model_server.answer = lambda received: Reply(completion().body, held=True)
    group = asyncio.create_task(Env().run_group(requests(model_server, 150)))
    await asyncio.to_thread(model_server.wait_for_requests, 150)
    model_server.release()
    assert {outcome.termination_reason for outcome in (await group).values()} == {"finished"}


async def test_every_request_carries_the_headers_of_its_own_rollout(model_server: ModelServer) -> None:
    for _ in range(2):
        await Env().run_group(requests(model_server, 32))
    assert len(model_server.requests) == 64
    for received in model_server.requests:
        assert received.headers["authorization"] == f"Bearer for-{received.body['model']}"


async def test_a_cookie_set_for_one_rollout_is_never_sent_by_another(model_server: ModelServer) -> None:
    def answer(received: Received) -> Reply:
        reply = completion() if len(received.body["messages"]) > 1 else completion(None, calls=[call("add", "{}")])
        return Reply(reply.body, headers=[("set-cookie", f"owner={received.body['model']}; Path=/")])

    model_server.answer = answer
    await WithTool().run_group(requests(model_server, 16, name="a"))
    await WithTool().run_group(requests(model_server, 16, name="b"))
    first_turns = [r for r in model_server.requests if len(r.body["messages"]) == 1]
    assert len(first_turns) == 32
    assert all("cookie" not in received.headers for received in first_turns)
    for received in model_server.requests:
        assert received.headers.get("cookie") in (None, f"owner={received.body['model']}")


async def test_rollouts_cancelled_in_the_middle_of_a_request_do_not_hurt_their_siblings(
    model_server: ModelServer,
) -> None:
    def answer(received: Received) -> Reply:
        return Reply(completion().body, held=int(received.body["model"][1:]) % 2 == 0)

    model_server.answer = answer
    environment = Env()
    await environment.run_group(requests(model_server, 64, name="w")[1::2])
    for round_ in range(3):
        already = len(model_server.requests)
        tasks = [asyncio.create_task(environment.run_rollout(one)) for one in requests(model_server, 64)]
        await asyncio.to_thread(model_server.wait_for_requests, already + 64)
        for task in tasks[::2]:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(result, asyncio.CancelledError) for result in results[::2]), round_
        assert {getattr(result, "termination_reason", result) for result in results[1::2]} == {"finished"}
    model_server.release()
    outcomes = await environment.run_group(requests(model_server, 64))
    assert {outcome.termination_reason for outcome in outcomes.values()} == {"finished"}


@pytest.mark.parametrize("steps", range(8))
async def test_rollouts_cancelled_while_connecting_do_not_hurt_their_siblings(
    model_server: ModelServer, steps: int
) -> None:
    environment = Env()
    await environment.run_group(requests(model_server, 1))  # loads what a first rollout loads
    await aclose_transports()
    tasks = [asyncio.create_task(environment.run_rollout(one)) for one in requests(model_server, 64)]
    for _ in range(steps):
        await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(result, asyncio.CancelledError) for result in results[::2])
    assert {getattr(result, "termination_reason", result) for result in results[1::2]} == {"finished"}
    outcomes = await environment.run_group(requests(model_server, 64))
    assert {outcome.termination_reason for outcome in outcomes.values()} == {"finished"}
    await aclose_transports()
    await asyncio.to_thread(model_server.wait_for_connections_left, 0)


async def test_a_rollout_cancelled_during_the_tls_handshake_leaves_no_socket_open() -> None:
    silent = await asyncio.start_server(lambda reader, writer: asyncio.sleep(0), "127.0.0.1", 0)
    host, port = silent.sockets[0].getsockname()
    hello = asyncio.Event()
    closed = asyncio.Event()

    async def read_hello(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        hello.set()
        while await reader.read(65536):
            pass
        writer.close()
        closed.set()

    silent.close()
    silent = await asyncio.start_server(read_hello, host, port)
    server = ModelServer(url=f"https://{host}:{port}/v1")
    task = asyncio.create_task(Env().run_rollout(requests(server, 1)[0]))
    await hello.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await closed.wait()
    silent.close()
    gc.collect()


async def test_a_failed_sibling_costs_its_own_connection_only(model_server: ModelServer) -> None:
    def answer(received: Received) -> Reply:
        return Reply(dropped=True) if received.body["model"] in ("r0", "r3") else completion()

    model_server.answer = answer
    for _ in range(3):
        outcomes = await Env().run_group(requests(model_server, 8))
        reasons = [outcome.termination_reason for outcome in outcomes.values()]
        assert reasons == ["model_error" if n in (0, 3) else "finished" for n in range(8)]


async def test_closing_one_client_leaves_its_siblings_and_the_connections_alone(model_server: ModelServer) -> None:
    model_server.answer = lambda received: Reply(completion().body, held=received.body["model"] == "slow")
    slow, quick = rollout_client(model_server.url), rollout_client(model_server.url)
    pending = asyncio.create_task(slow.chat.completions.create(model="slow", messages=MESSAGES))
    # otherwise it may come so late that it is sent on the other's connection
    await asyncio.to_thread(model_server.wait_for_requests, 1)
    await quick.chat.completions.create(model="quick", messages=MESSAGES)
    await quick.close()
    model_server.release()
    assert (await pending).choices[0].message.content == "42"
    await slow.close()
    async with rollout_client(model_server.url) as third:
        await third.chat.completions.create(model="third", messages=MESSAGES)
    assert model_server.connections == 2


async def test_a_response_left_unread_is_closed_with_its_client(model_server: ModelServer) -> None:
    big = b"data: {}\n\n" * 500_000
    model_server.answer = lambda received: Reply(big, content_type="text/event-stream")
    client = rollout_client(model_server.url)
    stream = await client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
    await client.close()
    await asyncio.to_thread(model_server.wait_for_connections_left, 0)
    del stream


async def test_an_idle_connection_that_the_server_closed_is_not_used_again(model_server: ModelServer) -> None:
    model_server.answer = lambda received: Reply(completion().body, headers=[("connection", "close")])
    for _ in range(3):
        outcomes = await Env().run_group(requests(model_server, 4))
        assert {outcome.termination_reason for outcome in outcomes.values()} == {"finished"}
    assert model_server.connections == 12


async def test_connections_beyond_the_idle_limit_are_closed(
    model_server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(async_pool, "MAX_IDLE", 2)
    model_server.answer = lambda received: Reply(completion().body, held=True)
    group = asyncio.create_task(Env().run_group(requests(model_server, 16)))
    await asyncio.to_thread(model_server.wait_for_requests, 16)
    model_server.release()
    await group
    await asyncio.to_thread(model_server.wait_for_connections_left, 2)


async def test_connections_idle_for_too_long_are_replaced(
    model_server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(async_pool, "KEEPALIVE_S", 0.0)
    for _ in range(3):
        await Env().run_group(requests(model_server, 1))
    assert model_server.connections == 3
    await asyncio.to_thread(model_server.wait_for_connections_left, 1)


async def test_closing_the_loops_transports_closes_every_connection_and_later_requests_work(
    model_server: ModelServer,
) -> None:
    await Env().run_group(requests(model_server, 8))
    await aclose_transports()
    await asyncio.to_thread(model_server.wait_for_connections_left, 0)
    await aclose_transports()
    await Env().run_group(requests(model_server, 8))


def test_every_loop_has_its_own_connections_and_takes_them_along(model_server: ModelServer) -> None:
    async def use() -> None:
        await Env().run_group(requests(model_server, 4))

    threads = [threading.Thread(target=asyncio.run, args=(use(),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    asyncio.run(use())
    model_server.wait_for_connections_left(0)
    assert async_pool._loops == {}


SCRIPT = """
import asyncio, sys
from benchmax.auth import StaticBearerAuth, create_async_openai_client, create_openai_client
from benchmax.envs import BaseEnv, Dataset, Example, RolloutRequest

class Env(BaseEnv):
    max_turns = 1
    async def create_dataset(self, split, base_dir, *, max_examples=None): return Dataset([])
    async def compute_reward(self, rollout): return {"x": 1.0}

URL, AUTH = sys.argv[1], StaticBearerAuth("t")

async def main():
    example = Example("e", {"prompt_messages": [{"role": "user", "content": "q"}]})
    outcomes = await Env().run_group([RolloutRequest(str(n), example, "m", URL, AUTH) for n in range(8)])
    assert {o.termination_reason for o in outcomes.values()} == {"finished"}, outcomes
    async with create_async_openai_client(model="m", base_url=URL, auth=AUTH, request_id="x") as client:
        await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "q"}])

asyncio.run(main())
with create_openai_client(model="m", base_url=URL, auth=AUTH, request_id="x") as client:
    client.chat.completions.create(model="m", messages=[{"role": "user", "content": "q"}])
"""


def test_a_users_script_ends_without_a_warning(model_server: ModelServer) -> None:
    ended = subprocess.run(
        [sys.executable, "-W", "always", "-c", SCRIPT, model_server.url],
        check=False,
        capture_output=True,
        text=True,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    model_server.wait_for_connections_left(0)


def test_synchronous_clients_of_all_threads_share_connections(model_server: ModelServer) -> None:
    def use() -> None:
        with create_openai_client(
            model="m", base_url=model_server.url, auth=StaticBearerAuth("t"), request_id="x"
        ) as client:
            client.chat.completions.create(model="m", messages=MESSAGES)

    for _ in range(3):
        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
    assert model_server.connections == 1
    model_server.answer = lambda received: Reply(completion().body, held=True)
    threads = [threading.Thread(target=use) for _ in range(16)]
    for thread in threads:
        thread.start()
    model_server.wait_for_requests(3 + 16)
    model_server.release()
    for thread in threads:
        thread.join()
    assert model_server.connections == 16
    sync_pool.close_transports()
    model_server.wait_for_connections_left(0)


def test_a_synchronous_response_left_unread_is_closed_with_its_client(model_server: ModelServer) -> None:
    big = b"data: {}\n\n" * 500_000
    model_server.answer = lambda received: Reply(big, content_type="text/event-stream")
    client = create_openai_client(model="m", base_url=model_server.url, auth=StaticBearerAuth("t"), request_id="x")
    stream = client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
    client.close()
    model_server.wait_for_connections_left(0)
    del stream


def test_a_forked_child_does_not_use_its_parents_connections(model_server: ModelServer) -> None:
    prelude = SCRIPT.partition("async def main")[0]
    forking = f"""{prelude}
import os
def use():
    with create_openai_client(model="m", base_url=URL, auth=AUTH, request_id="x") as client:
        client.chat.completions.create(model="m", messages=[{{"role": "user", "content": "q"}}])
use()
child = os.fork()
use()
if child == 0:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
use()
"""
    subprocess.run([sys.executable, "-c", forking, model_server.url], check=True)
    assert model_server.connections == 2


# TLS


@pytest.fixture
def tls_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    certificate = FIXTURES / "loopback.pem"
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with running_server(context) as server:
        yield server


async def test_all_clients_of_the_process_share_one_tls_context(
    tls_server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []
    library = openai_family().http
    create = library.create_ssl_context

    def counted(*arguments: Any, **options: Any) -> Any:
        made.append(create(*arguments, **options))
        return made[-1]

    monkeypatch.setattr(library, "create_ssl_context", counted)
    for _ in range(2):
        outcomes = await Env().run_group(requests(tls_server, 8))
        assert {outcome.termination_reason for outcome in outcomes.values()} == {"finished"}
        await aclose_transports()
    async with create_async_openai_client(
        model="m", base_url=tls_server.url, auth=StaticBearerAuth("t"), request_id="x"
    ) as client:
        await client.chat.completions.create(model="m", messages=MESSAGES)
    with create_openai_client(
        model="m", base_url=tls_server.url, auth=StaticBearerAuth("t"), request_id="x"
    ) as sync_client:
        sync_client.chat.completions.create(model="m", messages=MESSAGES)
    assert len(made) <= 1


async def test_another_certificate_file_is_honoured(tls_server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    outcomes = await Env().run_group(requests(tls_server, 1))
    assert outcomes["r0"].termination_reason == "model_error"


# Proxies and odd URLs


@pytest.mark.parametrize(
    ("environment", "url", "expected"),
    [
        ({}, "http://model.example/v1", None),
        ({"http_proxy": "http://proxy.example:1"}, "http://model.example/v1", "http://proxy.example:1"),
        ({"http_proxy": "http://proxy.example:1"}, "https://model.example/v1", None),
        ({"all_proxy": "proxy.example:1"}, "https://model.example/v1", "http://proxy.example:1"),
        ({"all_proxy": "http://p", "no_proxy": "example"}, "https://model.example/v1", None),
        ({"all_proxy": "http://p", "no_proxy": "model.example:8000"}, "http://model.example:8000/v1", None),
        ({"all_proxy": "http://p", "no_proxy": "model.example:8000"}, "http://model.example:8001/v1", "http://p"),
        ({"all_proxy": "http://p", "no_proxy": "127.0.0.1,localhost"}, "http://127.0.0.1:8000/v1", None),
        ({"all_proxy": "http://p", "no_proxy": "*"}, "https://model.example/v1", None),
    ],
)
def test_proxies_of_the_environment_are_honoured(
    environment: dict[str, str], url: str, expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert environment_proxy(openai_family().http.URL(url)) == expected


async def test_requests_go_through_the_proxy_of_the_environment(
    model_server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", model_server.url.removesuffix("/v1"))
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    behind = ModelServer(url="http://model.invalid/v1")
    outcomes = await Env().run_group(requests(behind, 2))
    assert {outcome.termination_reason for outcome in outcomes.values()} == {"finished"}
    with create_openai_client(model="m", base_url=behind.url, auth=StaticBearerAuth("t"), request_id="x") as client:
        await asyncio.to_thread(client.chat.completions.create, model="m", messages=MESSAGES)
    assert {received.target for received in model_server.requests} == {"http://model.invalid/v1/chat/completions"}
    await aclose_transports()


async def test_a_url_of_another_scheme_is_a_model_error_that_says_so(caplog: pytest.LogCaptureFixture) -> None:
    outcomes = await Env().run_group(requests(ModelServer(url="ftp://model.example/v1"), 1))
    assert outcomes["r0"].termination_reason == "model_error"
    assert "must begin with http:// or https://" in caplog.text


async def test_errors_of_the_connection_are_those_of_the_http_library(model_server: ModelServer) -> None:
    import openai

    library = openai_family().http
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
    async with rollout_client(f"http://{host}:{port}/v1") as client:
        with pytest.raises(openai.APIConnectionError) as caught:
            await client.chat.completions.create(model="m", messages=MESSAGES)
    assert isinstance(caught.value.__cause__, library.ConnectError)
    model_server.answer = lambda received: Reply(completion().body, held=True)
    async with rollout_client(model_server.url) as client:
        with pytest.raises(openai.APITimeoutError):
            await client.chat.completions.create(model="m", messages=MESSAGES, timeout=0.01)
    model_server.release()
