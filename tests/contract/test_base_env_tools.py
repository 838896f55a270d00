"""Tool calls of the stock environment: budget, execution, results."""

from __future__ import annotations

import json
import logging
from types import MappingProxyType
from typing import Any

import pytest

from benchmax.envs import RolloutFailure
from benchmax.envs.base.tool_calls import advertised_names
from tests.contract.loopback import ModelServer, call, completion
from tests.contract.test_base_env_loop import PROMPT, TOOL, WithTool, logged, rollout
from tests.naming import name_of

ASKS_FOR_ONE = completion(None, calls=[call("add", '{"a":1,"b":2}')])


class Returning(WithTool):
    """Its tool returns, or raises, a given value."""

    def __init__(self, *results: Any, **limits: Any) -> None:
        super().__init__(**limits)
        self.results = list(results)
        self.calls: list[tuple[str, dict[str, Any]]] = []

    async def run_tool(self, rollout_id: str, tool_name: str, **tool_args: Any) -> Any:
        self.calls.append((tool_name, tool_args))
        result = self.results.pop(0)
        if isinstance(result, BaseException):
            raise result
        return result


async def tool_content(server: ModelServer, result: Any) -> Any:
    server.script(ASKS_FOR_ONE, completion())
    message: Any = (await rollout(server, Returning(result))).messages[2]
    return message["content"]


async def test_a_transcript_with_a_tool_call_reads_like_this(model_server: ModelServer) -> None:
    model_server.script(
        completion(None, finish="tool_calls", calls=[call("add", '{"left":6,"right":7}')]), completion("42")
    )
    result = await rollout(model_server, Returning({"value": 42}))
    assert result.messages == [
        *PROMPT,
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"left":6,"right":7}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": '{"value":42}'},
        {"role": "assistant", "content": "42"},
    ]
    assert model_server.requests[1].body["messages"] == result.messages[:-1]
    assert result.termination_reason == "finished"


@pytest.mark.parametrize("finish", ["stop", "length", None])
async def test_with_tool_calls_the_finish_reason_is_ignored(model_server: ModelServer, finish: str | None) -> None:
    model_server.script(completion("x", finish=finish, calls=[call("add", "{}")]), completion())
    result = await rollout(model_server, Returning(1))
    assert result.termination_reason == "finished"
    assert len(model_server.requests) == 2


async def test_arguments_stay_verbatim_in_the_transcript(model_server: ModelServer) -> None:
    arguments = '{ "a" :1,"b": "é" }'
    model_server.script(completion(None, calls=[call("add", arguments)]), completion())
    environment = Returning(1)
    message: Any = (await rollout(model_server, environment)).messages[1]
    assert message["tool_calls"][0]["function"]["arguments"] == arguments
    assert environment.calls == [("add", {"a": 1, "b": "é"})]


async def test_calls_of_a_turn_run_in_order(model_server: ModelServer) -> None:
    model_server.script(
        completion(None, calls=[call("add", '{"n":1}', "one"), call("add", '{"n":2}', "two")]), completion()
    )
    environment = Returning("first", "second")
    result: Any = await rollout(model_server, environment)
    assert environment.calls == [("add", {"n": 1}), ("add", {"n": 2})]
    assert [(m["tool_call_id"], m["content"]) for m in result.messages[2:4]] == [("one", "first"), ("two", "second")]


async def test_a_turn_over_the_tool_budget_runs_none_of_its_calls(model_server: ModelServer) -> None:
    model_server.script(ASKS_FOR_ONE, completion(None, calls=[call("add", "{}"), call("add", "{}")]))
    environment = Returning(1, 2, 3, max_tool_calls=2)
    result: Any = await rollout(model_server, environment)
    assert result.termination_reason == "tool_budget_exceeded"
    assert len(environment.calls) == 1
    assert len(result.messages[-1]["tool_calls"]) == 2
    assert result.rewards == {"x": 1.0}


async def test_a_budget_that_is_met_exactly_is_not_exceeded_and_zero_allows_no_call(model_server: ModelServer) -> None:
    model_server.script(ASKS_FOR_ONE, completion(), ASKS_FOR_ONE)
    assert (await rollout(model_server, Returning(1, max_tool_calls=1))).termination_reason == "finished"
    assert (await rollout(model_server, Returning(max_tool_calls=0))).termination_reason == "tool_budget_exceeded"


async def test_calls_that_turn_out_invalid_count_against_the_budget(model_server: ModelServer) -> None:
    model_server.script(completion(None, calls=[call("nope", "{}"), call("add", "{")]), ASKS_FOR_ONE)
    environment = Returning(max_tool_calls=2)
    assert (await rollout(model_server, environment)).termination_reason == "tool_budget_exceeded"
    assert environment.calls == []


async def test_after_the_last_turn_its_tools_still_run(model_server: ModelServer) -> None:
    model_server.answer = lambda received: ASKS_FOR_ONE
    environment = Returning(1, 2, max_turns=2)
    result: Any = await rollout(model_server, environment)
    assert result.termination_reason == "max_turns_exceeded"
    assert [message["role"] for message in result.messages] == ["user", "assistant", "tool", "assistant", "tool"]
    assert len(model_server.requests) == 2


async def test_an_unadvertised_name_is_answered_without_running_anything(model_server: ModelServer) -> None:
    model_server.script(completion(None, calls=[call("nope", "{}")]), completion())
    environment = Returning()
    message: Any = (await rollout(model_server, environment)).messages[2]
    assert message == {"role": "tool", "tool_call_id": "c1", "content": "Unknown tool: nope"}
    assert environment.calls == []


def test_advertised_names_are_collected_leniently() -> None:
    malformed: list[Any] = [TOOL, {}, None, "x", {"function": None}, {"function": {"name": 3}}, {"function": {}}]
    assert advertised_names(malformed) == {"add"}


@pytest.mark.parametrize("arguments", ["{", "nonsense", " ", "[" * 100_000])
async def test_arguments_that_are_no_json_are_answered_with_the_parsers_reason(
    model_server: ModelServer, arguments: str
) -> None:
    model_server.script(completion(None, calls=[call("add", arguments)]), completion())
    result: Any = await rollout(model_server, Returning())
    content = result.messages[2]["content"]
    assert content.startswith("Invalid JSON tool arguments: ")
    if len(arguments) < 100:
        with pytest.raises(json.JSONDecodeError) as reason:
            json.loads(arguments)
        assert content == f"Invalid JSON tool arguments: {reason.value}"
    assert result.termination_reason == "finished"


@pytest.mark.parametrize("arguments", ["[]", "1", "null", '"x"', "NaN"])
async def test_arguments_that_are_no_object_are_answered_with_a_fixed_text(
    model_server: ModelServer, arguments: str
) -> None:
    model_server.script(completion(None, calls=[call("add", arguments)]), completion())
    message: Any = (await rollout(model_server, Returning())).messages[2]
    assert message["content"] == "Tool arguments must be a JSON object."


async def test_empty_arguments_mean_no_arguments(model_server: ModelServer) -> None:
    model_server.script(completion(None, calls=[call("add", "")]), completion())
    environment = Returning(1)
    await rollout(model_server, environment)
    assert environment.calls == [("add", {})]


@pytest.mark.parametrize("arguments", ['{"tool_name": "x"}', '{"rollout_id": "x"}', "{}"])
async def test_arguments_that_do_not_fit_the_signature_are_a_tool_failure(
    model_server: ModelServer, arguments: str
) -> None:
    class Strict(WithTool):
        async def run_tool(  # type: ignore[override]
            self, rollout_id: str, tool_name: str, *, needed: int
        ) -> Any:
            return needed

    model_server.script(completion(None, calls=[call("add", arguments)]))
    assert (await rollout(model_server, Strict())).termination_reason == "tool_error"


PARTS = [{"type": "text", "text": "é"}, {"type": "image_url", "image_url": {"url": "data:,"}}]


@pytest.mark.parametrize(
    ("result", "content"),
    [
        (PARTS, PARTS),
        (tuple(PARTS), PARTS),
        (None, ""),
        ("é", "é"),
        ({"value": 42, "text": "é"}, '{"value":42,"text":"é"}'),
        (MappingProxyType({"a": 1}), '{"a":1}'),
        ([], "[]"),
        ((1, "x"), '[1,"x"]'),
        (7, "7"),
        (1.5, "1.5"),
        (float("nan"), "NaN"),
        (True, "true"),
        ([PARTS[0], 1], '[{"type":"text","text":"é"},1]'),
        ([{"type": "audio"}], '[{"type":"audio"}]'),
        (b"x", "b'x'"),
        (3 + 4j, "(3+4j)"),
    ],
    ids=name_of,
)
async def test_a_result_becomes_content(model_server: ModelServer, result: Any, content: Any) -> None:
    assert await tool_content(model_server, result) == content


CIRCULAR: list[Any] = []
CIRCULAR.append(CIRCULAR)


@pytest.mark.parametrize("failure", [KeyError("bug"), {"a": object()}, [object()], CIRCULAR, {(1, 2): 1}], ids=name_of)
async def test_a_failing_tool_or_an_unserialisable_result_ends_the_rollout(
    model_server: ModelServer, caplog: pytest.LogCaptureFixture, failure: Any
) -> None:
    model_server.script(completion(None, calls=[call("add", "{}"), call("add", "{}")]))
    result: Any = await rollout(model_server, Returning("fine", failure))
    assert result.termination_reason == "tool_error"
    assert result.error is None
    assert result.rewards == {}
    assert [message["role"] for message in result.messages] == ["user", "assistant"]
    assert logged(caplog) == [
        (logging.ERROR, "base.rollout.tool_failed rollout_id=r termination_reason=tool_error", True)
    ]


@pytest.mark.parametrize(("reason", "rewards"), [("sandbox_error", {}), ("context_exceeded", {"x": 1.0})])
async def test_a_tools_rollout_failure_keeps_its_reason_and_is_scored_if_that_is_scorable(
    model_server: ModelServer, caplog: pytest.LogCaptureFixture, reason: str, rewards: dict[str, float]
) -> None:
    model_server.script(ASKS_FOR_ONE)
    result = await rollout(model_server, Returning(RolloutFailure(reason, "broke")))
    assert (result.termination_reason, result.rewards, result.error) == (reason, rewards, None)
    assert logged(caplog) == [
        (logging.ERROR, f"base.rollout.tool_failed rollout_id=r termination_reason={reason}", True)
    ]
