"""What the gateway saw of a rollout, in its record: calls, tokens, findings, and a transcript where it has none."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmax.envs import RolloutOutcome
from runner.gateway.exchange import CallTrace, ModelCall, Usage
from runner.gateway.findings import Finding
from runner.gateway.session import Collected
from runner.limits import MAX_TRANSCRIPT_VALUES
from runner.record import RolloutRecord
from runner.redaction import Redactor

QUESTION = {"role": "user", "content": "6 times 7?"}
ANSWER = {"role": "assistant", "content": "42"}
ROOM = 1_000_000
USAGE = Usage(prompt_tokens=5, completion_tokens=2, total_tokens=7)


def whole(message: object) -> bytes:
    return json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}).encode()


def trace(
    messages: object = (QUESTION,), answer: bytes = b"", *, number: int = 0, body: bytes | None = None, **fields: Any
) -> CallTrace:
    document = json.dumps({"model": "m", "messages": messages}).encode() if body is None else body
    route = fields.pop("route", "chat/completions")
    call = ModelCall(
        session="s",
        rollout_id="r",
        binding=None,
        number=number,
        method="POST",
        route=route,
        url=None,
        headers={},
        body=document,
        document=None,
    )
    plain: dict[str, Any] = {"began": 1.0, "seconds": 0.5, "first_byte_s": 0.1, "status": 200}
    return CallTrace(call=call, answer=answer, answer_type="application/json", **{**plain, **fields})


def collected(*traces: CallTrace, findings: tuple[Finding, ...] = ()) -> Collected:
    return Collected(
        num_calls=len(traces), contract_errors=(), contract_warnings=(), usage=USAGE, traces=traces, findings=findings
    )


def record(**fields: Any) -> RolloutRecord:
    return RolloutRecord(
        rollout_id="r", example_id="e", outcome=RolloutOutcome({}, "finished"), origin="environment", **fields
    )


def seen(*traces: CallTrace, room: int = ROOM, redactor: Redactor | None = None, **fields: Any) -> RolloutRecord:
    return record(**fields).with_session(collected(*traces), redactor or Redactor(), transcript_bytes=room)


def test_calls_tokens_and_findings_are_in_the_record() -> None:
    found = Finding(code="changed_tools", severity="error", field="tools", message="they changed", call=1)
    known = record().with_session(
        collected(trace(), trace(number=1), findings=(found,)), Redactor(), transcript_bytes=ROOM
    )
    assert [call.call.number for call in known.calls] == [0, 1]
    assert (known.num_calls, known.usage, known.diagnostics) == (2, USAGE, (found,))


def test_without_the_gateway_nothing_is_known_of_calls() -> None:
    assert (record().calls, record().num_calls, record().usage, record().diagnostics) == ((), 0, None, ())


def test_a_transcript_that_the_attempt_gave_stays() -> None:
    given = [{"role": "user", "content": "its own"}]
    assert seen(trace(), transcript=given).transcript == given
    assert seen(trace(), transcript=[]).transcript == []


def test_without_one_it_is_the_last_chat_request_and_its_answer() -> None:
    known = seen(
        trace(answer=whole(ANSWER)),
        trace([QUESTION, ANSWER, QUESTION], whole({**ANSWER, "content": "again"}), number=2),
        trace("no chat", b"{}", number=3, route="embeddings"),
        # it ended last, but the client had gone on long before
        trace([QUESTION], whole(ANSWER), number=1),
    )
    assert known.transcript == [QUESTION, ANSWER, QUESTION, {**ANSWER, "content": "again"}]
    assert known.transcript_omitted_bytes == 0
    assert known.held_bytes > 100


def test_a_streamed_answer_is_put_together() -> None:
    pieces = [{"role": "assistant", "content": ""}, {"content": "4"}, {"content": "2"}]
    events = [json.dumps({"choices": [{"index": 0, "delta": piece}]}) for piece in pieces]
    answer = "".join(f"data: {event}\r\n\r\n" for event in events) + "data: [DONE]\n\n"
    assert seen(trace(answer=answer.encode(), streamed=True)).transcript == [QUESTION, ANSWER]


@pytest.mark.parametrize(
    ("fields", "omitted"),
    [
        ({"answer": b'{"error": {"message": "no"}}', "status": 503}, 0),
        ({"answer": b"", "status": 0}, 0),
        ({"answer": b"<html>", "status": 200}, 0),
        ({"answer": whole(ANSWER)[:40], "omitted_bytes": 30}, 30),
        ({"answer": b"data: x\n\ndata: [DONE]\n\n", "streamed": True}, 0),
        ({"answer": b'data: {"error": {}}\n\ndata: {"error": {"message": "no"}}\n\n', "streamed": True}, 0),
    ],
)
def test_without_an_answer_it_is_the_request(fields: dict[str, Any], omitted: int) -> None:
    known = seen(trace(**fields))
    assert known.transcript == [QUESTION]
    assert known.transcript_omitted_bytes == omitted


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no json",
        b"[]",
        b'{"messages": 7}',
        b'{"messages": [{"role": "user", "content": "cut o',
        b'{"messages": ' + b"[" * 200 + b"]" * 200 + b"}",
        b'{"messages": [' + b"[]," * MAX_TRANSCRIPT_VALUES + b"[]]}",
        b'{"messages": ["\\ud800"]}',
        b'{"messages": [NaN]}',
        b"\xff" * 100,
    ],
)
def test_a_request_that_cannot_be_shown_is_counted(body: bytes) -> None:
    known = seen(trace(body=body, omitted_bytes=3))
    assert known.transcript == []
    assert known.transcript_omitted_bytes == len(body) + 3


def test_a_request_beyond_the_limit_is_counted() -> None:
    large = trace([{**QUESTION, "content": "x" * 1000}])
    known = seen(large, room=500)
    assert known.transcript == []
    assert known.transcript_omitted_bytes == len(large.call.body)


def test_where_no_chat_was_asked_for_there_is_no_transcript() -> None:
    assert seen(trace(route="embeddings")).transcript is None
    assert seen().transcript is None


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("\ud800"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)
documents = st.builds(
    lambda value: json.dumps(value).encode(),
    anything
    | st.fixed_dictionaries({"messages": st.lists(anything, max_size=3)})
    | st.fixed_dictionaries({"choices": st.lists(st.fixed_dictionaries({"message": anything, "delta": anything}))}),
)
octets = documents | st.binary(max_size=40)


@settings(max_examples=50, deadline=None)
@given(octets, octets, st.lists(octets, max_size=3), st.booleans(), st.sampled_from([200, 0, 500]))
def test_whatever_was_sent_and_answered_there_is_a_record_that_json_can_hold(
    body: bytes, answer: bytes, events: list[bytes], streamed: bool, status: int
) -> None:
    if streamed:
        answer = b"".join(b"data: " + event + b"\n\n" for event in (answer, *events))
    known = seen(trace(body=body, answer=answer, streamed=streamed, status=status))
    assert known.transcript is not None
    assert json.loads(msgspec.json.encode(known.transcript)) is not None


def test_secrets_that_a_worker_sent_are_neither_in_calls_nor_in_transcript_nor_in_findings() -> None:
    redactor = Redactor()
    redactor.learn_for_good("postgres-password-1")
    said = trace([{**QUESTION, "content": "the password is postgres-password-1"}], whole(ANSWER))
    found = Finding(
        code="trainer_owned_model_control",
        severity="error",
        field="stop",
        message='stop is "postgres-password-1"',
        call=0,
    )
    known = record().with_session(collected(said, findings=(found,)), redactor, transcript_bytes=ROOM)
    assert known.transcript == [{**QUESTION, "content": "the password is [redacted]"}, ANSWER]
    assert b"the password is [redacted]" in known.calls[0].call.body
    assert known.diagnostics[0].message == 'stop is "[redacted]"'


def test_a_body_that_is_no_text_is_kept_as_it_is() -> None:
    redactor = Redactor()
    redactor.learn_for_good("postgres-password-1")
    known = seen(trace(body=b"\xff\xfe postgres-password-1 \xff"), redactor=redactor)
    assert known.calls[0].call.body == b"\xff\xfe [redacted] \xff"
