"""Failures of models and judges, as they are made up."""

from __future__ import annotations

import json
from typing import Any

import pytest

from runner.gateway.exchange import Answer, ModelCall
from runner.recording.octets import Octets
from runner.recording.traffic import RecordedCall
from runner.validation.failures import Baseline
from runner.validation.faults import UNKNOWN_TOOL, Failing, Fault, NoContextLeft, Refusal, SenselessToolCalls
from runner.validation.tape import Playbacks
from tests.unit.recording_lab import Model, asking, whole

TOOL = {"type": "function", "function": {"name": "search", "parameters": {}}}
NOBODY = Model()


def recorded(number: int = 0, *, began: float = 0.0, **options: Any) -> RecordedCall:
    body = Octets(text=asking().body.decode())
    given = {"rollout_id": "victim", "route": "chat/completions", "answer": Octets(text='"recorded"'), **options}
    return RecordedCall(
        attempt=1, number=number, method="POST", request=body, began=began, seconds=0.0, status=200, **given
    )


def meeting(fault: Fault, who: str = "victim", *, binding: str | None = None) -> Any:
    playback = Playbacks([recorded(i) for i in range(3)], "http://model/v1").new(lambda text: text)
    return Failing(playback, fault, "victim").upstream(who, binding, NOBODY)


def chat(**options: Any) -> ModelCall:
    document = {"model": "m", "messages": [{"role": "user", "content": "hello"}], **options}
    call = asking(body=json.dumps(document).encode())
    return ModelCall(**{name: getattr(call, name) for name in call.__slots__} | {"document": document})


async def said(answer: Answer) -> Any:
    return json.loads(await whole(answer))


@pytest.mark.parametrize("status", [500, 429])
async def test_a_refusal_is_an_error_that_no_client_tries_again(status: int) -> None:
    fault = Refusal(status)
    answer = await meeting(fault).send(asking())
    assert answer.status == status
    assert dict(answer.headers)["x-should-retry"] == "false"
    assert "message" in (await said(answer))["error"]
    assert fault.injected


async def test_its_sibling_does_not_meet_it() -> None:
    fault = Refusal(500)
    with pytest.raises(Exception, match="no further answer"):
        await meeting(fault, "sibling").send(asking())
    assert not fault.injected


async def test_a_judges_outage_meets_its_binding_and_nothing_else() -> None:
    fault = Refusal(500, bindings=frozenset({"judge"}))
    assert (await meeting(fault, "anybody", binding="judge").send(asking())).status == 500
    assert await said(await meeting(fault).send(asking())) == "recorded"


async def test_the_context_is_used_up_from_one_call_on() -> None:
    upstream = meeting(NoContextLeft(1))
    assert await said(await upstream.send(asking())) == "recorded"
    answer = await upstream.send(asking())
    assert (answer.status, (await said(answer))["error"]["code"]) == (400, "context_budget_exceeded")


async def test_tools_are_called_in_ways_that_make_no_sense_once() -> None:
    upstream = meeting(fault := SenselessToolCalls())
    message = (await said(await upstream.send(chat(tools=[TOOL, "no tool", {"function": {}}]))))["choices"][0][
        "message"
    ]
    calls = [(call["function"]["name"], call["function"]["arguments"]) for call in message["tool_calls"]]
    assert (UNKNOWN_TOOL, "{}") in calls
    assert ("search", "[1, 2]") in calls
    assert len({call["id"] for call in message["tool_calls"]}) == len(calls)
    assert await said(await upstream.send(chat(tools=[TOOL]))) == "recorded"
    assert fault.injected


async def test_who_offers_no_tools_is_answered_as_before() -> None:
    upstream = meeting(fault := SenselessToolCalls())
    assert await said(await upstream.send(chat())) == "recorded"
    assert not fault.injected


async def test_a_stream_is_answered_by_a_stream() -> None:
    answer = await meeting(SenselessToolCalls()).send(chat(tools=[TOOL], stream=True))
    assert dict(answer.headers)["content-type"] == "text/event-stream"
    lines = [line for line in (await whole(answer)).split(b"\n\n") if line]
    assert lines[-1] == b"data: [DONE]"
    assert UNKNOWN_TOOL.encode() in b"".join(lines)


def test_a_judge_is_who_is_asked_when_the_conversation_is_over() -> None:
    calls = [
        recorded(began=1.0),
        recorded(began=2.0, binding="tool"),
        recorded(1, began=3.0),
        recorded(1, began=4.0, binding="tool"),
        recorded(began=4.0, binding="judge"),
        recorded(began=5.0, binding="panel", rollout_id="group victim"),
        recorded(began=5.0, binding="embedding", route="embeddings"),
    ]
    baseline = Baseline([], calls, None, scores_groups=False)  # type: ignore[arg-type]
    assert baseline.judges() == {"judge", "panel"}
