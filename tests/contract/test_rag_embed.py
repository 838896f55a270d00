"""The embedder, against a server on the loopback interface."""

from __future__ import annotations

import asyncio
import base64
import math
import pickle
import struct
from collections.abc import Mapping
from typing import Any

import openai
import pytest

from benchmax.auth import InjectedAuth, ModelRequestContext, StaticBearerAuth, bind_model_auth
from benchmax.rag import OpenAIEmbedder
from tests.contract.loopback import ModelServer, Received, Reply, error


@pytest.fixture(autouse=True)
def no_pause_between_sdk_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai._base_client.BaseClient, "_calculate_retry_timeout", lambda *_, **__: 0.0)


def embedder(server: ModelServer, auth: Any = None, **options: Any) -> OpenAIEmbedder:
    return OpenAIEmbedder("e", server.url, auth or StaticBearerAuth("t"), **options)


def vectors(*values: list[float], order: list[int] | None = None) -> Reply:
    data = [
        {
            "object": "embedding",
            "index": index if order is None else order[index],
            # the SDK asks for this form unless told otherwise
            "embedding": base64.b64encode(struct.pack(f"<{len(value)}f", *value)).decode(),
        }
        for index, value in enumerate(values)
    ]
    usage = {"prompt_tokens": 1, "total_tokens": 1}
    return Reply({"object": "list", "data": data, "model": "e", "usage": usage})


class Rotating:
    """Gives a new token every time and remembers what it was told."""

    def __init__(self) -> None:
        self.contexts: list[ModelRequestContext] = []

    async def headers_for_request(self, context: ModelRequestContext) -> Mapping[str, str]:
        self.contexts.append(context)
        return {"Authorization": f"Bearer token-{len(self.contexts)}"}


# --- construction


@pytest.mark.parametrize(("model", "url", "name"), [(" ", "http://x", "model"), ("m", "", "base_url")])
def test_blank_model_and_url_are_refused(model: str, url: str, name: str) -> None:
    with pytest.raises(ValueError, match=name):
        OpenAIEmbedder(model, url, StaticBearerAuth("t"))


def test_an_auth_without_the_protocol_is_refused() -> None:
    wrong: Any = "token"
    with pytest.raises(TypeError, match="ModelAuth"):
        OpenAIEmbedder("m", "http://x", wrong)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("timeout", 0),
        ("timeout", -1.0),
        ("timeout", True),
        ("timeout", "60"),
        ("timeout", math.nan),
        ("max_retries", -1),
        ("max_retries", 1.0),
        ("max_retries", True),
        ("max_retries", None),
    ],
)
def test_numbers_out_of_range_are_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=name):
        OpenAIEmbedder("m", "http://x", StaticBearerAuth("t"), **{name: value})


def test_its_fields_have_this_order_and_these_defaults() -> None:
    made = OpenAIEmbedder("m", "http://x", InjectedAuth("embedding"))
    assert list(OpenAIEmbedder.__dataclass_fields__) == ["model", "base_url", "auth", "timeout", "max_retries"]
    assert (made.timeout, made.max_retries) == (60.0, 2)
    assert OpenAIEmbedder("m", "http://x", InjectedAuth("embedding"), timeout=None, max_retries=0).timeout is None


def test_it_is_frozen_slotted_and_pickles_as_the_list_of_its_fields() -> None:
    made = OpenAIEmbedder("m", "http://x", StaticBearerAuth("secret"), 5, 1)
    assert pickle.loads(pickle.dumps(made)) == made
    state: Any = made.__reduce_ex__(2)[2]
    assert state == ["m", "http://x", StaticBearerAuth("secret"), 5, 1]
    assert "__dict__" not in dir(made)
    field: Any = "model"
    with pytest.raises(AttributeError):
        setattr(made, field, "other")
    assert "secret" not in repr(made)


# --- calls


async def test_texts_become_vectors_in_one_request(model_server: ModelServer) -> None:
    model_server.answer = lambda received: vectors([1.0, 0.0], [0.0, 0.5])
    result = await embedder(model_server)(["one", "two"])
    assert result == [[1.0, 0.0], [0.0, 0.5]]
    assert all(type(vector) is list and type(vector[0]) is float for vector in result)
    (request,) = model_server.requests
    assert (request.method, request.target) == ("POST", "/v1/embeddings")
    assert (request.body["model"], request.body["input"]) == ("e", ["one", "two"])
    assert request.headers["authorization"] == "Bearer t"


async def test_vectors_stay_in_the_order_of_the_response(model_server: ModelServer) -> None:
    model_server.answer = lambda received: vectors([1.0], [2.0], order=[1, 0])
    assert await embedder(model_server)(["one", "two"]) == [[1.0], [2.0]]


async def test_no_texts_need_no_client(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    monkeypatch.setattr("benchmax.rag.embed.create_async_openai_client", lambda **options: made.append(options))
    assert await OpenAIEmbedder("m", "http://x", InjectedAuth("unbound"))([]) == []
    assert made == []


@pytest.mark.parametrize("texts", ["text", ("one",), {"one"}, None, ["one", 2], [None], [["one"]]])
async def test_anything_but_a_list_of_strings_is_refused(model_server: ModelServer, texts: Any) -> None:
    with pytest.raises(TypeError, match="OpenAIEmbedder needs"):
        await embedder(model_server)(texts)
    assert model_server.requests == []


async def test_its_client_is_made_for_one_request_and_closed(
    model_server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from benchmax.auth import create_async_openai_client

    clients: list[Any] = []
    options: list[dict[str, Any]] = []

    def making(**given: Any) -> Any:
        options.append(given)
        clients.append(create_async_openai_client(**given))
        return clients[-1]

    monkeypatch.setattr("benchmax.rag.embed.create_async_openai_client", making)
    model_server.script(vectors([1.0]), error(400, None))
    embed = embedder(model_server, max_retries=5)
    await embed(["one"])
    with pytest.raises(openai.BadRequestError):
        await embed(["one"])
    assert [client.is_closed() for client in clients] == [True, True]
    assert options[0] == {
        "model": "e",
        "base_url": model_server.url,
        "auth": StaticBearerAuth("t"),
        "request_id": "rag-embedding",
        "max_retries": 5,
    }


async def test_auth_is_asked_before_every_http_attempt(model_server: ModelServer) -> None:
    model_server.script(error(500, None), error(429, None), vectors([1.0]))
    auth = Rotating()
    assert await embedder(model_server, auth)(["one"]) == [[1.0]]
    sent = [received.headers["authorization"] for received in model_server.requests]
    assert sent == ["Bearer token-1", "Bearer token-2", "Bearer token-3"]
    assert set(auth.contexts) == {ModelRequestContext(model_server.url, "e", "rag-embedding")}


@pytest.mark.parametrize("retries", [0, 1])
async def test_a_failing_server_is_asked_again_as_often_as_said(model_server: ModelServer, retries: int) -> None:
    model_server.answer = lambda received: error(503, None)
    with pytest.raises(openai.InternalServerError):
        await embedder(model_server, max_retries=retries)(["one"])
    assert len(model_server.requests) == retries + 1


@pytest.mark.parametrize(
    ("reply", "raised"),
    [
        (error(401, None), openai.AuthenticationError),
        (error(404, None), openai.NotFoundError),
        (Reply(dropped=True), openai.APIConnectionError),
        (vectors(), ValueError),
    ],
)
async def test_errors_are_raised_as_they_are(model_server: ModelServer, reply: Reply, raised: type[Exception]) -> None:
    model_server.answer = lambda received: reply
    with pytest.raises(raised):
        await embedder(model_server, max_retries=0)(["one"])


async def test_its_time_out_holds_for_one_attempt(model_server: ModelServer) -> None:
    model_server.answer = lambda received: Reply(held=True)
    with pytest.raises(openai.APITimeoutError):
        await embedder(model_server, timeout=0.05, max_retries=0)(["one"])


async def test_an_injected_auth_is_resolved_when_called(model_server: ModelServer) -> None:
    model_server.answer = lambda received: vectors([1.0])
    embed = embedder(model_server, InjectedAuth("embedding"))
    for token in ("first", "second"):
        with bind_model_auth({"embedding": StaticBearerAuth(token)}):
            await embed(["one"])
    assert [r.headers["authorization"] for r in model_server.requests] == ["Bearer first", "Bearer second"]


async def test_many_calls_at_once_reuse_connections_without_sharing_anything_else(model_server: ModelServer) -> None:
    def answer(received: Received) -> Reply:
        text = received.body["input"][0]
        return Reply(vectors([float(text)]).body, headers=[("set-cookie", f"seen={text}")])

    model_server.answer = answer
    embed = embedder(model_server)
    for _ in range(2):
        assert await asyncio.gather(*(embed([str(n)]) for n in range(8))) == [[[float(n)]] for n in range(8)]
    assert model_server.connections <= 8
    assert not any("cookie" in received.headers for received in model_server.requests)
