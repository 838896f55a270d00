"""The judge, against a server on the loopback interface that answers well, badly or not at all."""

from __future__ import annotations

import asyncio
import logging
import math
import pickle
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any
from unittest import mock

import openai
import pytest

import benchmax.rewards.judge as judge_module
from benchmax.auth import InjectedAuth, ModelRequestContext, StaticBearerAuth, bind_model_auth
from benchmax.envs import RolloutFailure
from benchmax.rewards import Judge, JudgeError
from tests.contract.loopback import ModelServer, Reply, completion, error
from tests.contract.rewards_lab import judge_at


@pytest.fixture(autouse=True)
def no_pause_between_sdk_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai._base_client.BaseClient, "_calculate_retry_timeout", lambda *_, **__: 0.0)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the lengths of the pauses made so far, none of which takes time."""
    slept: list[float] = []
    sleep = asyncio.sleep

    async def note(seconds: float, result: Any = None) -> Any:
        if seconds:
            slept.append(seconds)
        return await sleep(0, result)

    monkeypatch.setattr(asyncio, "sleep", note)
    return slept


class Rotating:
    """Gives a new token every time and remembers what it was told."""

    def __init__(self) -> None:
        self.contexts: list[ModelRequestContext] = []

    async def headers_for_request(self, context: ModelRequestContext) -> Mapping[str, str]:
        self.contexts.append(context)
        return {"Authorization": f"Bearer token-{len(self.contexts)}"}


def judged(server: ModelServer, auth: Any = None, **options: Any) -> Judge:
    return Judge("m", server.url, auth or StaticBearerAuth("t"), **options)


def tokens(server: ModelServer) -> list[str]:
    return [received.headers["authorization"] for received in server.requests]


# --- construction


@pytest.mark.parametrize(("model", "url", "name"), [(" ", "http://x", "model"), ("m", "", "base_url")])
def test_blank_model_and_url_are_refused(model: str, url: str, name: str) -> None:
    with pytest.raises(ValueError, match=name):
        Judge(model, url, StaticBearerAuth("t"))


def test_an_auth_without_the_protocol_is_refused() -> None:
    wrong: Any = "token"
    with pytest.raises(TypeError, match="ModelAuth"):
        Judge("m", "http://x", wrong)


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
        ("auth_attempts", 0),
        ("auth_attempts", True),
        ("auth_attempts", 2.0),
    ],
)
def test_numbers_out_of_range_are_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=name):
        Judge("m", "http://x", StaticBearerAuth("t"), **{name: value})


def test_defaults_and_no_timeout() -> None:
    judge = Judge("m", "http://x", InjectedAuth("judge"))
    assert (judge.timeout, judge.max_retries, judge.auth_attempts) == (60.0, 3, 3)
    assert Judge("m", "http://x", InjectedAuth("judge"), timeout=None).timeout is None


def test_a_judge_pickles_as_the_list_of_its_fields_and_hides_its_auth_in_repr() -> None:
    judge = Judge("m", "http://x", StaticBearerAuth("secret"), 5, 1, 2)
    assert pickle.loads(pickle.dumps(judge)) == judge
    state: Any = judge.__reduce_ex__(2)[2]
    assert state == ["m", "http://x", StaticBearerAuth("secret"), 5, 1, 2]
    assert "secret" not in repr(judge)


def test_a_judge_error_is_a_rollout_failure_that_survives_pickling() -> None:
    failure = pickle.loads(pickle.dumps(JudgeError("it broke")))
    assert isinstance(failure, RolloutFailure)
    assert (failure.termination_reason, str(failure)) == ("judge_error", "it broke")


# --- arguments of a request


@pytest.mark.parametrize(
    ("arguments", "kind", "text"),
    [
        ({"prompt": " "}, ValueError, "prompt"),
        ({"request_id": ""}, ValueError, "request_id"),
        ({"temperature": "0"}, TypeError, "temperature"),
        ({"temperature": True}, TypeError, "temperature"),
        ({"temperature": None}, TypeError, "temperature"),
        ({"temperature": math.inf}, ValueError, "temperature"),
        ({"temperature": math.nan}, ValueError, "temperature"),
        ({"temperature": 10**400}, ValueError, "temperature"),
        ({"max_tokens": 0}, ValueError, "max_tokens"),
        ({"max_tokens": True}, ValueError, "max_tokens"),
        ({"max_tokens": 1.5}, ValueError, "max_tokens"),
    ],
)
async def test_wrong_arguments_are_raised_as_they_are_before_any_request(
    model_server: ModelServer, arguments: dict[str, Any], kind: type[Exception], text: str
) -> None:
    given: dict[str, Any] = {"prompt": "p", "request_id": "r", **arguments}
    with pytest.raises(kind, match=text) as caught:
        await judged(model_server).request_json(given.pop("prompt"), **given)
    assert not isinstance(caught.value, JudgeError)
    assert model_server.requests == []


# --- the request


async def test_the_body_holds_model_message_and_temperature_and_nothing_else(model_server: ModelServer) -> None:
    model_server.answer = lambda received: completion('{"a": 1}')
    assert await judged(model_server).request_json("the prompt", request_id="r") == ({"a": 1}, '{"a": 1}')
    (received,) = model_server.requests
    assert (received.method, received.target) == ("POST", "/v1/chat/completions")
    message = {"role": "user", "content": "the prompt"}
    assert received.body == {"model": "m", "messages": [message], "temperature": 0.0}


async def test_max_tokens_is_sent_when_given_and_temperature_as_given(model_server: ModelServer) -> None:
    model_server.answer = lambda received: completion("{}")
    await judged(model_server).request_json("p", request_id="r", temperature=0.5, max_tokens=7)
    body = model_server.requests[0].body
    assert (body["temperature"], body["max_tokens"]) == (0.5, 7)


async def test_the_credential_source_is_told_url_model_and_request_id(model_server: ModelServer) -> None:
    model_server.answer = lambda received: completion("{}")
    source = Rotating()
    await judged(model_server, source).request_json("p", request_id="rubric:x")
    assert source.contexts == [ModelRequestContext(model_server.url, "m", "rubric:x")]


async def test_an_injected_auth_takes_what_is_bound_at_call_time(model_server: ModelServer) -> None:
    model_server.answer = lambda received: completion("{}")
    judge = judged(model_server, InjectedAuth("judge"))
    for token in ("first", "second"):
        with bind_model_auth({"judge": StaticBearerAuth(token)}):
            await judge.request_json("p", request_id="r")
    assert tokens(model_server) == ["Bearer first", "Bearer second"]


@pytest.mark.parametrize("status", [408, 409, 429, 500, 503])
async def test_the_sdk_retries_and_every_attempt_asks_for_headers_again(model_server: ModelServer, status: int) -> None:
    model_server.script(error(status, None), error(status, None), completion('{"a": 1}'))
    assert (await judged(model_server, Rotating()).request_json("p", request_id="r"))[0] == {"a": 1}
    assert tokens(model_server) == ["Bearer token-1", "Bearer token-2", "Bearer token-3"]


async def test_a_dropped_connection_is_retried(model_server: ModelServer) -> None:
    model_server.script(Reply(dropped=True), completion('{"a": 1}'))
    assert (await judged(model_server).request_json("p", request_id="r"))[0] == {"a": 1}


@pytest.mark.parametrize("reply", [error(429, None), error(500, None), Reply(dropped=True)], ids=["429", "500", "drop"])
async def test_what_outlasts_the_retries_is_a_judge_error_with_its_cause(
    model_server: ModelServer, reply: Reply
) -> None:
    model_server.answer = lambda received: reply
    with pytest.raises(JudgeError, match=r"request failed .*r, model 'm' at http") as caught:
        await judged(model_server, max_retries=2).request_json("p", request_id="r")
    assert isinstance(caught.value.__cause__, openai.OpenAIError)
    assert len(model_server.requests) == 3


async def test_a_client_error_is_not_retried(model_server: ModelServer) -> None:
    model_server.answer = lambda received: error(400, "other")
    with pytest.raises(JudgeError, match="request failed"):
        await judged(model_server).request_json("p", request_id="r")
    assert len(model_server.requests) == 1


async def test_a_server_that_answers_nothing_runs_into_the_timeout(model_server: ModelServer) -> None:
    model_server.answer = lambda received: Reply(held=True)
    with pytest.raises(JudgeError, match=r"request failed.*[Tt]imed? ?out"):
        await judged(model_server, timeout=0.1, max_retries=0).request_json("p", request_id="r")


async def test_an_unbound_injected_auth_is_named_in_the_error(model_server: ModelServer) -> None:
    with pytest.raises(JudgeError, match=r"request failed.*No runtime model-auth provider.*'judge'"):
        await judged(model_server, InjectedAuth("judge"), max_retries=0).request_json("p", request_id="r")
    assert model_server.requests == []


async def test_a_credential_source_that_fails_is_asked_once_and_its_own_error_is_the_cause(
    model_server: ModelServer,
) -> None:
    closed, asked = LookupError("the vault is closed"), []

    class Failing:
        async def headers_for_request(self, context: ModelRequestContext) -> Mapping[str, str]:
            asked.append(context)
            raise closed from KeyError("no key")

    with pytest.raises(
        JudgeError, match=r"request failed.*LookupError: the vault is closed; caused by KeyError"
    ) as caught:
        await judged(model_server, Failing()).request_json("p", request_id="r")
    assert caught.value.__cause__ is closed
    assert len(asked) == 1
    assert model_server.requests == []


async def test_a_server_page_in_an_error_is_cut(model_server: ModelServer) -> None:
    model_server.answer = lambda received: Reply(b"<html>" + b"x" * 100_000, status=404, content_type="text/html")
    with pytest.raises(JudgeError) as caught:
        await judged(model_server).request_json("p", request_id="r")
    assert len(str(caught.value)) < 3000


async def test_cancelling_a_request_hangs_up_and_leaves_the_next_one_alone(model_server: ModelServer) -> None:
    model_server.answer = lambda received: Reply(held=True)
    task = asyncio.create_task(judged(model_server).request_json("p", request_id="r"))
    await asyncio.to_thread(model_server.wait_for_requests, 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.to_thread(model_server.wait_for_connections_left, 0)
    model_server.answer = lambda received: completion("{}")
    assert await judged(model_server).request_json("p", request_id="r") == ({}, "{}")


async def test_no_variable_of_the_sdk_reaches_the_judge(
    model_server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("API_KEY", "ORG_ID", "PROJECT_ID", "BASE_URL"):
        monkeypatch.setenv(f"OPENAI_{name}", "from-the-environment")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Custom: from-the-environment")
    model_server.answer = lambda received: completion("{}")
    await judged(model_server).request_json("p", request_id="r")
    assert "from-the-environment" not in str(model_server.requests)


# --- refused credentials


@pytest.mark.parametrize("status", [401, 403])
async def test_refused_credentials_are_resolved_again_after_growing_pauses(
    model_server: ModelServer, pauses: list[float], status: int
) -> None:
    model_server.script(error(status, None), error(status, None), completion('{"a": 1}'))
    assert (await judged(model_server, Rotating()).request_json("p", request_id="r"))[0] == {"a": 1}
    assert tokens(model_server) == ["Bearer token-1", "Bearer token-2", "Bearer token-3"]
    assert pauses == [0.5, 1.0]


@pytest.mark.parametrize("attempts", [1, 3])
async def test_credentials_refused_to_the_end_are_a_judge_error_with_the_last_one_as_cause(
    model_server: ModelServer, pauses: list[float], attempts: int
) -> None:
    model_server.answer = lambda received: error(401, None)
    with pytest.raises(JudgeError, match="authentication failed") as caught:
        await judged(model_server, auth_attempts=attempts).request_json("p", request_id="r")
    assert isinstance(caught.value.__cause__, openai.AuthenticationError)
    assert len(model_server.requests) == attempts
    assert pauses == [0.5, 1.0][: attempts - 1]


async def test_another_failure_after_a_refusal_ends_the_attempts(
    model_server: ModelServer, pauses: list[float]
) -> None:
    model_server.script(error(401, None), error(400, None))
    with pytest.raises(JudgeError, match="request failed"):
        await judged(model_server).request_json("p", request_id="r")
    assert len(model_server.requests) == 2


async def test_a_refused_credential_is_logged_without_the_credential(
    model_server: ModelServer, pauses: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    model_server.script(error(401, None), completion("{}"))
    with caplog.at_level(logging.DEBUG, logger="benchmax"):
        await judge_at(model_server).request_json("p", request_id="r")
    (record,) = caplog.records
    assert record.getMessage() == "judge.auth_refused request_id=r attempt=1"


# --- the SDK's class can be replaced


class Stand:
    """Answers without a server, and counts how often it is closed."""

    made: list[dict[str, Any]]
    closed = 0

    def __init__(self, **options: Any) -> None:
        type(self).made.append(options)
        self.chat = SimpleNamespace(completions=SimpleNamespace(create=self.create))

    async def create(self, **options: Any) -> Any:
        self.asked = options
        if len(type(self).made) < 3:
            refusal = RuntimeError("refused")
            refusal.status_code = 401  # type: ignore[attr-defined]
            raise refusal
        return SimpleNamespace(choices=[SimpleNamespace(message=SimpleNamespace(content=' {"a": 1} '))])


class ClosedByCall(Stand):
    async def close(self) -> None:
        ClosedByCall.closed += 1


class ClosedByContext(Stand):
    async def __aenter__(self) -> ClosedByContext:
        return self

    async def __aexit__(self, *_: object) -> None:
        ClosedByContext.closed += 1


@pytest.mark.parametrize("stand", [ClosedByCall, ClosedByContext])
async def test_every_attempt_makes_a_new_client_from_the_replaceable_name_and_closes_it(
    stand: type[Stand], pauses: list[float]
) -> None:
    stand.made, stand.closed = [], 0
    judge = Judge("m", "http://model.example/v1", StaticBearerAuth("t"), max_retries=5)
    with mock.patch("benchmax.rewards.judge.AsyncOpenAI", stand):
        assert await judge.request_json("p", request_id="r") == ({"a": 1}, '{"a": 1}')
    assert stand.closed == len(stand.made) == 3
    assert {(options["base_url"], options["max_retries"]) for options in stand.made} == {("http://model.example/v1", 5)}
    assert judge_module.AsyncOpenAI is openai.AsyncOpenAI


async def test_the_timeout_is_an_option_of_the_call(pauses: list[float]) -> None:
    asked: list[dict[str, Any]] = []

    class Noting(ClosedByCall):
        made: list[dict[str, Any]] = []  # noqa: RUF012

        async def create(self, **options: Any) -> Any:
            asked.append(options)
            return SimpleNamespace(choices=[SimpleNamespace(message=SimpleNamespace(content="{}"))])

    with mock.patch("benchmax.rewards.judge.AsyncOpenAI", Noting):
        await Judge("m", "http://x", StaticBearerAuth("t"), timeout=7).request_json("p", request_id="r")
    assert asked[0]["timeout"] == 7
