"""Headers asked for before every HTTP attempt, in both kinds of client."""

from __future__ import annotations

import asyncio
import contextvars
import importlib
import importlib.util
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

import openai
import pytest

from benchmax.auth import (
    InjectedAuth,
    ModelAuth,
    ModelRequestContext,
    RequestModelAuth,
    StaticBearerAuth,
    bind_model_auth,
    create_async_openai_client,
    create_openai_client,
)
from benchmax.transport import http_family
from tests.contract.loopback import ModelServer, Reply, completion, error

MESSAGES: Any = [{"role": "user", "content": "q"}]
CONTEXT = ModelRequestContext("http://model.example/v1", "m", "label")


class Rotating:
    """A credential source whose token changes with every call."""

    def __init__(self) -> None:
        self.contexts: list[ModelRequestContext] = []
        self.threads: list[threading.Thread] = []

    async def headers_for_request(self, context: ModelRequestContext) -> Mapping[str, str]:
        self.contexts.append(context)
        self.threads.append(threading.current_thread())
        return {"Authorization": f"Bearer token-{len(self.contexts)}"}


class Failing:
    """A credential source that raises."""

    def __init__(self, failure: BaseException) -> None:
        self.failure = failure

    async def headers_for_request(self, context: ModelRequestContext) -> Mapping[str, str]:
        raise self.failure


def ask(server: ModelServer, auth: ModelAuth, *, max_retries: int = 2) -> None:
    with create_openai_client(
        model="m", base_url=server.url, auth=auth, request_id="label", max_retries=max_retries
    ) as client:
        client.chat.completions.create(model="m", messages=MESSAGES)


async def ask_async(server: ModelServer, auth: ModelAuth, *, max_retries: int = 2) -> None:
    async with create_async_openai_client(
        model="m", base_url=server.url, auth=auth, request_id="label", max_retries=max_retries
    ) as client:
        await client.chat.completions.create(model="m", messages=MESSAGES)


async def ask_sync_in_a_running_loop(server: ModelServer, auth: ModelAuth) -> None:
    ask(server, auth)


def sync_runner(function: Callable[[ModelServer, ModelAuth], Any]) -> Callable[[ModelServer, ModelAuth], None]:
    return lambda server, auth: asyncio.run(function(server, auth))


Way = Callable[[ModelServer, ModelAuth], None]

WAYS: dict[str, Way] = {
    "sync": ask,
    "async": sync_runner(ask_async),
    "sync client inside a running loop": sync_runner(ask_sync_in_a_running_loop),
}


@pytest.fixture(params=list(WAYS))
def way(request: pytest.FixtureRequest) -> Way:
    return WAYS[request.param]


@pytest.fixture(autouse=True)
def no_retry_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retry at once: the SDK's pause before a retry says nothing about headers."""
    monkeypatch.setattr(openai._base_client.BaseClient, "_calculate_retry_timeout", lambda *_, **__: 0.0)


def installed_libraries() -> list[Any]:
    found = [name for name in ("httpx", "httpx2") if importlib.util.find_spec(name)]
    return [importlib.import_module(name) for name in found]


@pytest.mark.parametrize("library", installed_libraries(), ids=lambda library: library.__name__)
def test_request_auth_is_an_auth_of_every_installed_http_library(library: Any) -> None:
    assert issubclass(RequestModelAuth, library.Auth)
    client = library.Client(auth=RequestModelAuth(StaticBearerAuth("t"), CONTEXT))
    assert isinstance(client.auth, RequestModelAuth)
    client.close()


@pytest.mark.parametrize("library", installed_libraries(), ids=lambda library: library.__name__)
async def test_request_auth_works_with_plain_clients_of_every_installed_library(
    library: Any, model_server: ModelServer
) -> None:
    auth = RequestModelAuth(Rotating(), CONTEXT)
    async with library.AsyncClient(auth=auth, trust_env=False) as client:
        await client.post(f"{model_server.url}/x", json={})
    with library.Client(auth=auth, trust_env=False) as client:
        client.post(f"{model_server.url}/x", json={})
    assert [r.headers["authorization"] for r in model_server.requests] == ["Bearer token-1", "Bearer token-2"]


def test_request_auth_refuses_what_is_no_model_auth() -> None:
    wrong: Any = object()
    with pytest.raises(TypeError, match="ModelAuth"):
        RequestModelAuth(wrong, CONTEXT)


@pytest.mark.parametrize("factory", [create_openai_client, create_async_openai_client])
def test_factories_refuse_what_is_no_model_auth_at_construction(factory: Any) -> None:
    with pytest.raises(TypeError, match="ModelAuth"):
        factory(model="m", base_url="http://model.example", auth=object(), request_id="label")


@pytest.mark.parametrize("factory", [create_openai_client, create_async_openai_client])
def test_factory_arguments_are_keyword_only(factory: Any) -> None:
    with pytest.raises(TypeError, match="positional"):
        factory("m", "http://model.example", StaticBearerAuth("t"), "label")


def test_factories_default_to_two_retries_and_pass_the_base_url_on() -> None:
    with create_openai_client(
        model="m", base_url="http://model.example/v1", auth=StaticBearerAuth("t"), request_id="label"
    ) as client:
        assert client.max_retries == 2
        assert str(client.base_url) == "http://model.example/v1/"
        assert client.api_key == "benchmax-explicit-auth"


def test_the_source_is_told_url_model_and_label(model_server: ModelServer, way: Way) -> None:
    source = Rotating()
    way(model_server, source)
    assert source.contexts == [ModelRequestContext(model_server.url, "m", "label")]


def test_every_retry_asks_again(model_server: ModelServer, way: Way) -> None:
    model_server.script(error(500, None), error(500, None), completion())
    way(model_server, Rotating())
    assert [r.headers["authorization"] for r in model_server.requests] == [
        "Bearer token-1",
        "Bearer token-2",
        "Bearer token-3",
    ]


def test_a_lost_connection_asks_again(model_server: ModelServer, way: Way) -> None:
    model_server.script(Reply(dropped=True), completion())
    way(model_server, Rotating())
    assert [r.headers["authorization"] for r in model_server.requests] == ["Bearer token-1", "Bearer token-2"]


def test_only_returned_headers_are_touched_so_the_placeholder_stays(model_server: ModelServer, way: Way) -> None:
    class OtherHeader:
        async def headers_for_request(self, context: ModelRequestContext) -> Mapping[str, str]:
            return {"X-Key": "k", "user-agent": "mine"}

    way(model_server, OtherHeader())
    headers = model_server.requests[0].headers
    assert headers["authorization"] == "Bearer benchmax-explicit-auth"
    assert headers["x-key"] == "k"
    assert headers["user-agent"] == "mine"


def test_bindings_are_visible_to_the_source(model_server: ModelServer, way: Way) -> None:
    with bind_model_auth({"judge": StaticBearerAuth("bound")}):
        way(model_server, InjectedAuth("judge"))
    assert model_server.requests[0].headers["authorization"] == "Bearer bound"


def test_no_environment_variable_of_the_sdk_reaches_the_request(
    model_server: ModelServer, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "from-the-environment"
    for name in ("API_KEY", "ORG_ID", "PROJECT_ID", "ADMIN_KEY", "BASE_URL", "WEBHOOK_SECRET"):
        monkeypatch.setenv(f"OPENAI_{name}", secret)
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", f"X-Custom: {secret}")
    way(model_server, StaticBearerAuth("t"))
    assert secret not in str(model_server.requests)


def test_no_api_key_variable_is_needed(model_server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    ask(model_server, StaticBearerAuth("t"))
    assert len(model_server.requests) == 1


def sync_flow(auth: ModelAuth) -> Any:
    request = http_family.openai_family().http.Request("POST", "http://model.example", headers={"Authorization": "old"})
    return next(RequestModelAuth(auth, CONTEXT).sync_auth_flow(request))


def test_the_sync_flow_without_a_loop_asks_in_this_thread() -> None:
    source = Rotating()
    request = sync_flow(source)
    assert request.headers.get_list("authorization") == ["Bearer token-1"]
    assert source.threads == [threading.current_thread()]


async def test_the_sync_flow_with_a_running_loop_asks_in_a_daemon_thread_with_the_callers_context() -> None:
    source = Rotating()
    with bind_model_auth({"judge": source}):
        sync_flow(InjectedAuth("judge"))
    (thread,) = source.threads
    assert thread is not threading.current_thread()
    assert thread.daemon
    assert not thread.is_alive()


async def test_what_the_source_sets_in_the_thread_stays_in_its_copy_of_the_context() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="mine")

    class Setting:
        async def headers_for_request(self, context: ModelRequestContext) -> Mapping[str, str]:
            variable.set("theirs")
            return {}

    sync_flow(Setting())
    assert variable.get() == "mine"


@pytest.mark.parametrize("failure", [LookupError("x"), KeyboardInterrupt(), SystemExit(3), GeneratorExit()])
async def test_any_exception_of_the_thread_is_raised_in_the_caller_as_the_same_object(failure: BaseException) -> None:
    with pytest.raises(type(failure)) as caught:
        sync_flow(Failing(failure))
    assert caught.value is failure


async def test_a_thread_that_ends_without_a_result_is_a_runtime_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading.Thread, "run", lambda self: None)
    with pytest.raises(RuntimeError, match="without a result"):
        sync_flow(StaticBearerAuth("t"))


async def test_both_flows_yield_the_request_exactly_once() -> None:
    request = http_family.openai_family().http.Request("POST", "http://model.example")
    flow = RequestModelAuth(StaticBearerAuth("t"), CONTEXT).async_auth_flow(request)
    assert await anext(flow) is request
    with pytest.raises(StopAsyncIteration):
        await flow.asend(None)
    sync = RequestModelAuth(StaticBearerAuth("t"), CONTEXT).sync_auth_flow(request)
    assert next(sync) is request
    with pytest.raises(StopIteration):
        sync.send(None)


def test_the_class_is_made_once_whatever_asks_for_it() -> None:
    code = (
        "import benchmax.auth, pickle\n"
        "from benchmax.auth import *\n"
        "assert RequestModelAuth is benchmax.auth.RequestModelAuth\n"
        "assert pickle.loads(pickle.dumps(RequestModelAuth)) is RequestModelAuth\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=dict(os.environ))
