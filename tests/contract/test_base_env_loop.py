"""One rollout of the stock environment: limits, payload, model turns."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmax.auth import ModelRequestContext
from benchmax.envs import (
    BaseEnv,
    BaseRollout,
    Dataset,
    DatasetSplit,
    Example,
    ModelAuth,
    RewardMap,
    RolloutAttempt,
    RolloutFailure,
    RolloutRequest,
    StaticBearerAuth,
)
from tests.contract.loopback import ModelServer, Reply, call, completion, error

LOGGER = "benchmax.envs.base.env"
PROMPT = [{"role": "user", "content": "q"}]
TOOL: Any = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}


class Env(BaseEnv):
    """A stock environment with one tool and a constant reward."""

    max_turns = 3
    tools: Any = ()

    async def create_dataset(
        self, split: DatasetSplit, base_dir: Path, *, max_examples: int | None = None
    ) -> Dataset[Any]:
        return Dataset([])

    async def list_tools(self) -> list[Any]:
        return list(self.tools)

    async def run_tool(self, rollout_id: str, tool_name: str, **tool_args: Any) -> Any:
        return {"sum": sum(tool_args.values())}

    async def compute_reward(self, rollout: BaseRollout) -> RewardMap | None:
        return {"x": 1.0}


class WithTool(Env):
    tools = (TOOL,)


def request(server: ModelServer, payload: Any = None, *, auth: ModelAuth | None = None) -> RolloutRequest[Any]:
    example = Example("e", {"prompt_messages": PROMPT} if payload is None else payload)
    return RolloutRequest("r", example, "the-model", server.url, auth or StaticBearerAuth("t"), "eval")


async def rollout(server: ModelServer, environment: BaseEnv | None = None, payload: Any = None) -> BaseRollout:
    return await (environment or Env()).run_rollout(request(server, payload))


def logged(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str, bool]]:
    return [
        (record.levelno, record.getMessage(), record.exc_info is not None)
        for record in caplog.records
        if record.name == LOGGER
    ]


# Attempts and configuration


def test_a_base_rollout_has_its_fields_in_this_order() -> None:
    assert list(BaseRollout.__dataclass_fields__) == [
        "rollout_id",
        "termination_reason",
        "rewards",
        "error",
        "messages",
        "example_args",
        "split",
    ]
    built = BaseRollout(rollout_id="r", termination_reason="whatever", messages=[], example_args={})
    assert isinstance(built, RolloutAttempt)
    assert built.split == "train"
    incomplete: Any = BaseRollout
    with pytest.raises(TypeError, match="messages"):
        incomplete(rollout_id="r", termination_reason="finished")


def test_only_create_dataset_is_abstract() -> None:
    assert BaseEnv.__abstractmethods__ == {"create_dataset"}
    assert BaseEnv.max_turns is None
    assert BaseEnv.max_tool_calls is None


def test_constructor_arguments_override_class_attributes_on_the_instance() -> None:
    environment = Env(max_turns=7, max_tool_calls=0)
    assert (environment.max_turns, environment.max_tool_calls) == (7, 0)
    assert (Env.max_turns, Env.max_tool_calls) == (3, None)
    assert Env().max_turns == 3
    positional: Any = Env
    with pytest.raises(TypeError):
        positional(3)


@pytest.mark.parametrize("turns", [0, -1, True, 1.0, "1"])
def test_max_turns_must_be_a_positive_integer(turns: Any) -> None:
    with pytest.raises(ValueError, match=r"max_turns.*positive integer"):
        Env(max_turns=turns)


@pytest.mark.parametrize("calls", [-1, False, 0.0, "0"])
def test_max_tool_calls_must_be_a_non_negative_integer(calls: Any) -> None:
    with pytest.raises(ValueError, match=r"max_tool_calls.*non-negative integer"):
        Env(max_tool_calls=calls)


async def test_limits_are_checked_again_before_every_rollout(model_server: ModelServer) -> None:
    environment = Env()
    environment.max_turns = 0
    with pytest.raises(ValueError, match="positive integer"):
        await rollout(model_server, environment)
    environment.max_turns, environment.max_tool_calls = 1, -1
    with pytest.raises(ValueError, match="non-negative integer"):
        await rollout(model_server, environment)


async def test_a_constructor_that_skips_super_is_fine_as_long_as_max_turns_is_set(model_server: ModelServer) -> None:
    class NoSuper(Env):
        def __init__(self) -> None:
            pass

    assert (await rollout(model_server, NoSuper())).termination_reason == "finished"


async def test_max_turns_must_be_set_by_the_time_of_a_rollout(model_server: ModelServer) -> None:
    class Unset(Env):
        max_turns = None  # type: ignore[assignment]

    with pytest.raises(ValueError, match="max_turns"):
        await rollout(model_server, Unset())


# Payload


@pytest.mark.parametrize("payload", [[], "x", 3, ("prompt_messages",)])
async def test_a_payload_must_be_a_mapping(model_server: ModelServer, payload: Any) -> None:
    with pytest.raises(TypeError, match="payload"):
        await rollout(model_server, payload=payload)


@pytest.mark.parametrize("prompt", [None, [], tuple(PROMPT), "hello", {"role": "user"}])
async def test_prompt_messages_must_be_a_non_empty_list(model_server: ModelServer, prompt: Any) -> None:
    with pytest.raises(ValueError, match="prompt_messages"):
        await rollout(model_server, payload={"prompt_messages": prompt})
    with pytest.raises(ValueError, match="prompt_messages"):
        await rollout(model_server, payload={"answer": 1})


@pytest.mark.parametrize(
    ("message", "place"),
    [
        ("x", r"prompt_messages\[1\] "),
        ({"content": "x"}, r"prompt_messages\[1\]\.role"),
        ({"role": 1}, r"prompt_messages\[1\]\.role"),
    ],
)
async def test_every_prompt_message_is_a_mapping_with_a_role(
    model_server: ModelServer, message: Any, place: str
) -> None:
    with pytest.raises(TypeError, match=place):
        await rollout(model_server, payload={"prompt_messages": [*PROMPT, message]})


async def test_the_example_is_copied_and_everything_but_the_prompt_is_its_args(model_server: ModelServer) -> None:
    parts = [{"type": "text", "text": "q"}, {"type": "image_url", "image_url": {"url": "data:,"}}]
    payload = {"prompt_messages": [{"role": "user", "content": parts}], "answer": "a", "n": [1]}
    result = await rollout(model_server, payload=payload)
    assert payload["prompt_messages"] == [{"role": "user", "content": parts}]
    assert result.messages[0] is not payload["prompt_messages"][0]
    assert result.example_args == {"answer": "a", "n": [1]}
    assert result.split == "eval"
    assert model_server.requests[0].body["messages"] == [{"role": "user", "content": parts}]


# Hooks around the loop


async def test_the_default_hooks_do_nothing(model_server: ModelServer) -> None:
    class Bare(BaseEnv):
        max_turns = 1

        async def create_dataset(
            self, split: DatasetSplit, base_dir: Path, *, max_examples: int | None = None
        ) -> Dataset[Any]:
            return Dataset([])

    environment = Bare()
    result = await rollout(model_server, environment)
    assert await environment.list_tools() == []
    assert await environment.compute_reward(result) is None
    assert await environment.compute_group_rewards([result]) is None
    with pytest.raises(ValueError, match="Unknown tool"):
        await environment.run_tool("r", "add")
    await environment.aclose()


async def test_the_hooks_run_in_order_inside_the_rollout_context_reward_included(model_server: ModelServer) -> None:
    events: list[str] = []

    class Recording(WithTool):
        @asynccontextmanager
        async def rollout_context(self, rollout_id: str, example: Example[Any]) -> AsyncIterator[None]:
            events.append(f"enter {rollout_id} {example.id}")
            yield
            events.append("leave")

        async def list_tools(self) -> list[Any]:
            events.append("list")
            return await super().list_tools()

        async def run_tool(self, rollout_id: str, tool_name: str, **tool_args: Any) -> Any:
            events.append(f"tool {rollout_id} {tool_name} {tool_args}")

        async def compute_reward(self, rollout: BaseRollout) -> RewardMap | None:
            events.append("reward")
            return {"x": 1}

    model_server.script(completion(None, calls=[call("add", '{"a":1}')]), completion())
    await rollout(model_server, Recording())
    assert events == ["enter r e", "list", "tool r add {'a': 1}", "reward", "leave"]


async def test_the_client_closes_after_the_reward(model_server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    import openai

    events: list[str] = []
    close = openai.AsyncOpenAI.close

    async def recorded(client: openai.AsyncOpenAI) -> None:
        events.append("close")
        assert client.max_retries == 0
        await close(client)

    class Recording(Env):
        async def compute_reward(self, rollout: BaseRollout) -> RewardMap | None:
            events.append("reward")
            return {"x": 1}

    monkeypatch.setattr(openai.AsyncOpenAI, "close", recorded)
    await rollout(model_server, Recording())
    assert events == ["reward", "close"]


@pytest.mark.parametrize("where", ["enter", "list_tools", "leave"])
async def test_a_failure_around_the_loop_becomes_an_outcome_and_loses_rewards(
    model_server: ModelServer, where: str
) -> None:
    class Failing(Env):
        @asynccontextmanager
        async def rollout_context(self, rollout_id: str, example: Example[Any]) -> AsyncIterator[None]:
            self.fail_at("enter")
            yield
            self.fail_at("leave")

        async def list_tools(self) -> list[Any]:
            self.fail_at("list_tools")
            return []

        def fail_at(self, here: str) -> None:
            if here == where:
                raise RolloutFailure("sandbox_error", f"failed at {where}")

    outcomes = await Failing().run_group([request(model_server)])
    assert outcomes["r"].termination_reason == "sandbox_error"
    assert outcomes["r"].rewards == {}
    assert outcomes["r"].error == f"failed at {where}"


async def test_a_defect_around_the_loop_is_a_contract_error(model_server: ModelServer) -> None:
    class Failing(Env):
        async def list_tools(self) -> list[Any]:
            raise KeyError("bug")

    with pytest.raises(KeyError, match="bug"):
        await Failing().run_group([request(model_server)])


# Requests


async def test_a_request_carries_model_and_transcript_and_nothing_else(model_server: ModelServer) -> None:
    await rollout(model_server)
    (received,) = model_server.requests
    assert (received.method, received.target) == ("POST", "/v1/chat/completions")
    assert received.body == {"model": "the-model", "messages": PROMPT}


async def test_tools_are_sent_only_when_there_are_any(model_server: ModelServer) -> None:
    await rollout(model_server, WithTool())
    assert model_server.requests[0].body["tools"] == [TOOL]


async def test_headers_are_asked_for_before_every_request_with_url_model_and_rollout(model_server: ModelServer) -> None:
    class Rotating:
        def __init__(self) -> None:
            self.contexts: list[ModelRequestContext] = []

        async def headers_for_request(self, context: ModelRequestContext) -> Mapping[str, str]:
            self.contexts.append(context)
            return {"Authorization": f"Bearer {len(self.contexts)}", "X-Turn": str(len(self.contexts))}

    auth = Rotating()
    model_server.script(completion(None, calls=[call("add", "{}")]), completion())
    await WithTool().run_rollout(request(model_server, auth=auth))
    assert auth.contexts == [ModelRequestContext(model_server.url, "the-model", "r")] * 2
    assert [r.headers["authorization"] for r in model_server.requests] == ["Bearer 1", "Bearer 2"]
    assert [r.headers["x-turn"] for r in model_server.requests] == ["1", "2"]


async def test_without_an_authorization_header_the_placeholder_is_sent(
    model_server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Other:
        async def headers_for_request(self, context: ModelRequestContext) -> Mapping[str, str]:
            return {"X-Key": "k"}

    monkeypatch.setenv("OPENAI_API_KEY", "from-the-environment")
    await Env().run_rollout(request(model_server, auth=Other()))
    assert model_server.requests[0].headers["authorization"] == "Bearer benchmax-runtime-auth"
    assert model_server.requests[0].headers["x-key"] == "k"


# Failures of the model

FAILURES: list[tuple[str, Reply, str, int]] = [
    ("context budget", error(400, "context_budget_exceeded"), "context_exceeded", logging.WARNING),
    ("top-level code", error(400, "context_budget_exceeded", top_level=True), "context_exceeded", logging.WARNING),
    ("openai's code", error(400, "context_length_exceeded"), "model_error", logging.WARNING),
    ("other 400", error(400, None), "model_error", logging.WARNING),
    ("same code under 422", error(422, "context_budget_exceeded"), "model_error", logging.ERROR),
    ("same code under 413", error(413, "context_budget_exceeded"), "model_error", logging.ERROR),
    ("server error", error(500, None), "model_error", logging.ERROR),
    ("rate limit", error(429, None), "model_error", logging.ERROR),
    ("connection lost", Reply(dropped=True), "model_error", logging.ERROR),
    ("not json", Reply(b"{", content_type="application/json"), "model_error", logging.ERROR),
]


@pytest.mark.parametrize(("reply", "reason", "level"), [row[1:] for row in FAILURES], ids=[row[0] for row in FAILURES])
async def test_a_failed_request_ends_the_rollout_without_a_retry(
    model_server: ModelServer, caplog: pytest.LogCaptureFixture, reply: Reply, reason: str, level: int
) -> None:
    model_server.answer = lambda received: reply
    result = await rollout(model_server)
    assert result.termination_reason == reason
    assert result.error is None
    assert result.messages == PROMPT
    assert result.rewards == ({"x": 1.0} if reason == "context_exceeded" else {})
    assert len(model_server.requests) == 1
    event = f"base.rollout.model_failed rollout_id=r termination_reason={reason}"
    assert logged(caplog) == [(level, event, True)]


async def test_an_unreachable_server_is_a_model_error(caplog: pytest.LogCaptureFixture) -> None:
    closed = ModelServer(url="http://127.0.0.1:1/v1")
    assert (await rollout(closed)).termination_reason == "model_error"
    assert logged(caplog)[0][0] == logging.ERROR


@pytest.mark.parametrize("failure", [LookupError("vault"), RolloutFailure("finished_oddly", "x")])
async def test_an_exception_of_the_auth_is_a_model_error(
    model_server: ModelServer, caplog: pytest.LogCaptureFixture, failure: Exception
) -> None:
    class Failing:
        async def headers_for_request(self, context: ModelRequestContext) -> Mapping[str, str]:
            raise failure

    result = await Env().run_rollout(request(model_server, auth=Failing()))
    assert (result.termination_reason, result.error, result.rewards) == ("model_error", None, {})
    assert model_server.requests == []
    assert logged(caplog) == [
        (logging.ERROR, "base.rollout.model_failed rollout_id=r termination_reason=model_error", True)
    ]


@pytest.mark.parametrize("body", [{}, {"choices": None}, {"choices": []}])
async def test_a_response_without_choices_is_a_model_error(
    model_server: ModelServer, caplog: pytest.LogCaptureFixture, body: dict[str, Any]
) -> None:
    model_server.answer = lambda received: Reply(body)
    assert (await rollout(model_server)).termination_reason == "model_error"
    ((level, message, _),) = logged(caplog)
    assert level == logging.ERROR
    assert "response contained no choices" in message


# Responses


async def test_only_the_first_choice_and_only_its_content_are_kept(model_server: ModelServer) -> None:
    message = {"role": "assistant", "content": "a", "refusal": "no", "reasoning": "hm", "name": "bot", "audio": None}
    choices = [
        {"index": 0, "finish_reason": "stop", "message": message},
        {"index": 1, "finish_reason": "length", "message": {"role": "assistant", "content": "b"}},
    ]
    model_server.answer = lambda received: Reply({"choices": choices})
    result = await rollout(model_server)
    assert result.messages == [*PROMPT, {"role": "assistant", "content": "a"}]
    assert result.termination_reason == "finished"


@pytest.mark.parametrize(
    ("finish", "reason"),
    [
        ("stop", "finished"),
        ("length", "output_exceeded"),
        (None, "model_error"),
        ("content_filter", "content_filter"),
        ("tool_calls", "tool_calls"),
        ("something new", "something new"),
    ],
)
async def test_a_turn_without_tool_calls_ends_with_the_mapped_finish_reason(
    model_server: ModelServer, finish: str | None, reason: str
) -> None:
    model_server.answer = lambda received: completion("4", finish=finish)
    result = await rollout(model_server)
    assert result.termination_reason == reason
    assert result.messages[-1] == {"role": "assistant", "content": "4"}
    assert result.error is None
    assert result.rewards == ({"x": 1.0} if reason in Env.scorable_termination_reasons else {})


async def test_a_tool_call_that_is_no_function_is_a_contract_error(model_server: ModelServer) -> None:
    custom = {"id": "c", "type": "custom", "custom": {"name": "n", "input": "i"}}
    model_server.answer = lambda received: completion(None, calls=[custom])
    with pytest.raises(TypeError, match="function tool calls only"):
        await WithTool().run_group([request(model_server)])


async def test_a_malformed_response_is_a_contract_error(model_server: ModelServer) -> None:
    model_server.answer = lambda received: Reply({"choices": ["nonsense"]})
    with pytest.raises(AttributeError):
        await WithTool().run_group([request(model_server)])
