"""What is found in the requests of a session: every kind, and nothing in what clients usually send."""

from __future__ import annotations

import copy
import json
import tracemalloc
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import pytest

from runner.gateway.controls import CONTROLS
from runner.gateway.diagnostics import SessionContract
from runner.gateway.findings import MAX_PLACES, Code, Finding

Message = dict[str, Any]

SYSTEM: Message = {"role": "system", "content": "Be brief."}
QUESTION: Message = {"role": "user", "content": "6 times 7?"}
CALL = {"id": "c1", "type": "function", "function": {"name": "multiply", "arguments": '{"left": 6, "right": 7}'}}
CALLING: Message = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT: Message = {"role": "tool", "tool_call_id": "c1", "content": "42"}
ANSWER: Message = {"role": "assistant", "content": "42"}
MORE: Message = {"role": "user", "content": "And twice that?"}
TOOL = {"type": "function", "function": {"name": "multiply", "parameters": {"type": "object", "properties": {}}}}
OTHER = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}


def body(*messages: Message, **fields: object) -> dict[str, object]:
    return {"model": "m", "messages": copy.deepcopy(list(messages)), **fields}


def session(*turns: tuple[Mapping[str, object], Message | None]) -> SessionContract:
    """A session of calls one after the other, each with its answer."""
    contract = SessionContract()
    for number, (document, answer) in enumerate(turns):
        contract.began(number, document)
        if answer is not None:
            contract.answered(number, answer)
        contract.ended(number)
    return contract


def found(contract: SessionContract) -> list[tuple[str, str, str]]:
    return [(finding.code, finding.severity, finding.field) for finding in contract.findings]


# -- controls -------------------------------------------------------------------------------------------------

TRAINERS = "trainer_owned_model_control"
UNSUPPORTED = "unsupported_model_control"


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("temperature", 0, TRAINERS),
        ("temperature", 0.7, TRAINERS),
        ("top_p", 0.9, TRAINERS),
        ("top_k", 40, TRAINERS),
        ("seed", 0, TRAINERS),
        ("presence_penalty", -0.5, TRAINERS),
        ("frequency_penalty", 2, TRAINERS),
        ("stop", "\n", TRAINERS),
        ("stop", ["a"], TRAINERS),
        ("stop_token_ids", [1], TRAINERS),
        ("ignore_eos", True, TRAINERS),
        ("min_p", 0.05, UNSUPPORTED),
        ("repetition_penalty", 1.1, UNSUPPORTED),
        ("max_new_tokens", 100, UNSUPPORTED),
        ("n", 2, UNSUPPORTED),
        ("n", True, UNSUPPORTED),
        ("best_of", 1, UNSUPPORTED),
        ("tool_choice", "required", UNSUPPORTED),
        ("tool_choice", "none", UNSUPPORTED),
        ("tool_choice", {"type": "function", "function": {"name": "add"}}, UNSUPPORTED),
        ("parallel_tool_calls", False, UNSUPPORTED),
        ("logprobs", True, UNSUPPORTED),
        ("top_logprobs", 5, UNSUPPORTED),
        ("response_format", {"type": "json_object"}, UNSUPPORTED),
        ("response_format", {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}, UNSUPPORTED),
        ("logit_bias", {"50256": -100}, UNSUPPORTED),
        ("reasoning_effort", "low", UNSUPPORTED),
        ("prediction", {"type": "content", "content": "x"}, UNSUPPORTED),
        ("functions", [{"name": "add"}], UNSUPPORTED),
        ("function_call", "auto", UNSUPPORTED),
        ("guided_json", {"type": "object"}, UNSUPPORTED),
        ("store", True, UNSUPPORTED),
        ("modalities", ["text", "audio"], UNSUPPORTED),
        ("audio", {"voice": "alloy", "format": "wav"}, UNSUPPORTED),
        ("web_search_options", {}, UNSUPPORTED),
        ("chat_template_kwargs", {"enable_thinking": False}, UNSUPPORTED),
        ("return_routed_experts", True, UNSUPPORTED),
    ],
)
def test_a_control_that_is_not_the_harness_s_is_an_error_at_its_name(field: str, value: object, code: str) -> None:
    contract = session((body(QUESTION, **{field: value}), ANSWER))
    assert found(contract) == [(code, "error", field)]
    (item,) = contract.errors
    assert item["code"] == code
    assert item["field"] == field
    assert item["message"].startswith(f"{field} is ")
    assert contract.warnings == []


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
def test_a_cap_of_the_output_is_a_warning(field: str) -> None:
    contract = session((body(QUESTION, **{field: 512}), ANSWER))
    assert found(contract) == [("harness_output_cap", "warning", field)]
    assert contract.errors == []
    assert contract.warnings[0]["message"].startswith(f"{field} is 512: ")


@pytest.mark.parametrize("field", CONTROLS)
def test_null_asks_for_nothing(field: str) -> None:
    assert not session((body(QUESTION, **{field: None}), ANSWER)).findings


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n", 1),
        ("tool_choice", "auto"),
        ("parallel_tool_calls", True),
        ("logprobs", False),
        ("response_format", {"type": "text"}),
        ("response_format", {}),
        ("logit_bias", {}),
        ("stop", []),
        ("store", False),
        ("modalities", ["text"]),
        ("stream", True),
        ("stream_options", {"include_usage": True}),
        ("user", "somebody"),
        ("metadata", {"run": "1"}),
        ("service_tier", "auto"),
        ("prompt_cache_key", "k"),
        ("safety_identifier", "s"),
        ("timeout", 60),
        ("no_such_field", True),
    ],
)
def test_what_changes_no_answer_is_no_finding(field: str, value: object) -> None:
    assert not session((body(QUESTION, **{field: value}), ANSWER)).findings


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", 1),
        ("temperature", 1.0),
        ("top_p", 1),
        ("top_k", -1),
        ("presence_penalty", 0),
        ("frequency_penalty", 0.0),
    ],
)
def test_a_sampling_control_at_the_default_of_the_api_is_a_warning(field: str, value: float) -> None:
    contract = session((body(QUESTION, **{field: value}), ANSWER))
    assert found(contract) == [(TRAINERS, "warning", field)]


def test_the_page_on_diagnostics_names_every_field_and_every_kind() -> None:
    page = (Path(__file__).parents[2] / "docs" / "diagnostics.md").read_text("utf-8")
    for name in (*CONTROLS, *get_args(Code)):
        assert f"`{name}`" in page, name


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("x" * 10_000, '"xxx'),
        ("\x1b[2J\u202e", r'"\u001b[2J\u202e"'),
        ("\ud800", r'"\ud800"'),
        (10**4000, "a number of many digits"),
        ({"deep": [[[]]]}, "an object"),
        ([1] * 10_000, "an array"),
        (False, "false"),
    ],
)
def test_a_value_is_shown_short_and_cannot_act_on_a_terminal(value: object, shown: str) -> None:
    (item,) = session((body(QUESTION, seed=value), ANSWER)).errors
    assert item["message"].startswith(f"seed is {shown}")
    assert len(item["message"]) < 200
    assert item["message"].isprintable()


# -- history --------------------------------------------------------------------------------------------------


def test_a_conversation_that_only_grows_has_no_findings() -> None:
    assert not session(
        (body(SYSTEM, QUESTION, tools=[TOOL]), CALLING),
        (body(SYSTEM, QUESTION, CALLING, RESULT, tools=[TOOL]), ANSWER),
        (body(SYSTEM, QUESTION, CALLING, RESULT, ANSWER, MORE, tools=[TOOL]), {"role": "assistant", "content": "84"}),
    ).findings


@pytest.mark.parametrize(
    ("messages", "field", "fact"),
    [
        ([{**SYSTEM, "content": "Be long."}, QUESTION, ANSWER, MORE], "messages[0].content", "differs"),
        ([SYSTEM, {**QUESTION, "content": "6 by 7?"}, ANSWER, MORE], "messages[1].content", "differs"),
        ([{**SYSTEM, "role": "developer"}, QUESTION, ANSWER, MORE], "messages[0]", "another message"),
        ([SYSTEM, {**QUESTION, "name": "Ann"}, ANSWER, MORE], "messages[1]", "another message"),
        ([QUESTION, ANSWER, MORE], "messages[0]", "is gone"),
        ([QUESTION, SYSTEM, ANSWER, MORE], "messages[0]", "another order"),
        ([SYSTEM, MORE, QUESTION, ANSWER], "messages[1]", "was put in"),
        ([SYSTEM], "messages[1]", "only the first 1 are left"),
        ([SYSTEM, QUESTION], "messages[2]", "it ends where the answer of call 0"),
        ([SYSTEM, QUESTION, MORE], "messages[2]", "no message of the assistant"),
        ([SYSTEM, QUESTION, {**ANSWER, "content": "43"}, MORE], "messages[2].content", "not what the model answered"),
        ([SYSTEM, QUESTION, {**ANSWER, "content": None}, MORE], "messages[2].content", "not what the model answered"),
        ([SYSTEM, QUESTION, {**ANSWER, "tool_calls": [CALL]}, RESULT], "messages[2].tool_calls", "not the calls"),
        ([SYSTEM, QUESTION, "42", MORE], "messages[2]", "no message of the assistant"),
    ],
)
def test_a_conversation_that_was_rewritten_is_an_error_where_it_departs(
    messages: list[Message], field: str, fact: str
) -> None:
    contract = session((body(SYSTEM, QUESTION), ANSWER), (body(*messages), ANSWER))
    assert found(contract) == [("rewritten_history", "error", field)]
    assert fact in contract.errors[0]["message"]
    assert contract.findings[0].call == 1


@pytest.mark.parametrize(
    "calls",
    [
        [],
        [{**CALL, "id": "c2"}],
        [{**CALL, "function": {"name": "add", "arguments": CALL["function"]["arguments"]}}],  # type: ignore[index]
        [{**CALL, "function": {"name": "multiply", "arguments": '{"left": 7, "right": 6}'}}],
        [{**CALL, "function": {"name": "multiply", "arguments": "{"}}],
        [CALL, CALL],
        ["c1"],
        "c1",
    ],
)
def test_calls_of_an_answer_that_were_changed_are_an_error(calls: object) -> None:
    changed = {**CALLING, "tool_calls": calls}
    contract = session((body(QUESTION), CALLING), (body(QUESTION, changed, RESULT), ANSWER))
    assert found(contract) == [("rewritten_history", "error", "messages[1].tool_calls")]


@pytest.mark.parametrize(
    ("answered", "appended"),
    [
        ({**ANSWER, "refusal": None, "annotations": [], "audio": None, "tool_calls": None}, ANSWER),
        ({**ANSWER, "reasoning_content": "six sevens", "reasoning": "so"}, ANSWER),
        (ANSWER, {**ANSWER, "tool_calls": [], "function_call": None, "refusal": None}),
        (ANSWER, {**ANSWER, "content": [{"type": "text", "text": "4"}, {"type": "text", "text": "2"}]}),
        ({**CALLING, "content": ""}, CALLING),
        (CALLING, {**CALLING, "content": ""}),
        (CALLING, {"role": "assistant", "tool_calls": [{**CALL, "index": 0}]}),
        ({"role": "assistant", "content": None, "refusal": "I cannot."}, {"role": "assistant", "content": None}),
        (
            CALLING,
            {
                **CALLING,
                "tool_calls": [{**CALL, "function": {"name": "multiply", "arguments": '{"right":7,"left":6}'}}],
            },
        ),
        (
            {**CALLING, "tool_calls": [{"id": "", "function": CALL["function"]}]},
            {**CALLING, "tool_calls": [{**CALL, "id": "made-up"}]},
        ),
        (
            {**CALLING, "tool_calls": [{**CALL, "function": {"name": "now", "arguments": ""}}]},
            {**CALLING, "tool_calls": [{**CALL, "function": {"name": "now", "arguments": "{}"}}]},
        ),
    ],
)
def test_what_clients_change_of_an_answer_is_no_rewriting(answered: Message, appended: Message) -> None:
    assert not session((body(QUESTION), answered), (body(QUESTION, appended, MORE), ANSWER)).findings


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (QUESTION, {"role": "user", "content": [{"type": "text", "text": "6 times 7?"}]}),
        (
            {"role": "user", "content": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}]},
            {"role": "user", "content": "x"},
        ),
        (QUESTION, {**QUESTION, "name": None}),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}, "cache_control": {}}]},
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]},
        ),
    ],
)
def test_what_clients_change_of_earlier_messages_is_no_rewriting(before: Message, after: Message) -> None:
    assert not session((body(before), ANSWER), (body(after, ANSWER, MORE), ANSWER)).findings


def test_reasoning_that_is_dropped_later_is_no_rewriting() -> None:
    thoughtful = {**ANSWER, "reasoning_content": "six sevens"}
    second = {"role": "assistant", "content": "84"}
    assert not session(
        (body(QUESTION), thoughtful),
        (body(QUESTION, thoughtful, MORE), second),
        (body(QUESTION, ANSWER, MORE, second, MORE), ANSWER),
    ).findings


def test_a_text_is_not_taken_for_the_parts_that_it_spells() -> None:
    part = {"type": "image_url", "image_url": {"url": "u"}}
    parts = {"role": "user", "content": [part]}
    text = {"role": "user", "content": json.dumps([part], separators=(",", ":"))}
    contract = session((body(parts), ANSWER), (body(text, ANSWER), ANSWER))
    assert found(contract) == [("rewritten_history", "error", "messages[0].content")]


def test_a_request_that_failed_may_be_made_again_in_another_way() -> None:
    shorter = {**QUESTION, "content": "?"}
    assert not session(
        (body(SYSTEM, QUESTION, tools=[TOOL]), None), (body(shorter), ANSWER), (body(shorter, ANSWER, MORE), ANSWER)
    ).findings


def test_after_a_rewriting_what_was_sent_then_counts() -> None:
    contract = session(
        (body(SYSTEM, QUESTION), ANSWER),
        (body(MORE), ANSWER),
        (body(MORE, ANSWER, QUESTION), ANSWER),
        (body(MORE, ANSWER, SYSTEM), ANSWER),
    )
    assert [(finding.field, finding.call) for finding in contract.findings] == [
        ("messages[0]", 1),
        ("messages[2]", 3),
    ]


# -- tools ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tools", "field"),
    [
        ([OTHER, TOOL], "tools"),
        ([TOOL], "tools"),
        ([TOOL, OTHER, OTHER], "tools"),
        (None, "tools"),
        ([], "tools"),
        ([TOOL, {**OTHER, "strict": True}], "tools[1]"),
        ([{"type": "function", "function": {"name": "divide"}}, OTHER], "tools[0]"),
        ("tools", "tools"),
    ],
)
def test_other_tools_than_at_first_are_an_error(tools: object, field: str) -> None:
    contract = session((body(QUESTION, tools=[TOOL, OTHER]), ANSWER), (body(QUESTION, ANSWER, MORE, tools=tools), None))
    assert found(contract) == [("changed_tools", "error", field)]


def test_no_tools_are_the_same_however_that_is_said() -> None:
    assert not session(
        (body(QUESTION), ANSWER),
        (body(QUESTION, ANSWER, MORE, tools=[]), None),
        (body(QUESTION, ANSWER, tools=None), None),
    ).findings


def test_the_order_of_members_in_a_tool_means_nothing() -> None:
    turned = {"function": dict(reversed(list(TOOL["function"].items()))), "type": "function"}  # type: ignore[attr-defined]
    assert not session(
        (body(QUESTION, tools=[TOOL]), ANSWER), (body(QUESTION, ANSWER, MORE, tools=[turned]), ANSWER)
    ).findings


# -- overlapping ----------------------------------------------------------------------------------------------


def test_a_request_before_the_last_has_its_answer_is_an_error() -> None:
    contract = SessionContract()
    contract.began(0, body(QUESTION))
    contract.began(1, body(MORE))
    (item,) = contract.errors
    assert item["code"] == "overlapping_generations"
    assert "field" not in item
    assert "call 1 began before call 0 had its answer" in item["message"]


@pytest.mark.parametrize("how", ["answered", "ended"])
def test_a_request_that_begins_when_the_last_is_answered_or_over_does_not_overlap(how: str) -> None:
    contract = SessionContract()
    contract.began(0, body(QUESTION))
    if how == "answered":
        contract.answered(0, ANSWER)
    else:
        contract.ended(0)
    contract.began(1, body(QUESTION, ANSWER, MORE))
    assert not contract.findings


def test_of_requests_at_the_same_time_the_newest_is_gone_on_from() -> None:
    contract = SessionContract()
    contract.began(0, body(QUESTION))
    contract.began(1, body(MORE))
    contract.answered(1, ANSWER)
    contract.answered(0, ANSWER)
    contract.began(2, body(MORE, ANSWER, QUESTION))
    assert found(contract) == [("overlapping_generations", "error", "")]


# -- bounds ---------------------------------------------------------------------------------------------------


def test_what_is_found_again_in_the_same_place_is_counted() -> None:
    contract = session(*((body(QUESTION, temperature=0.5, max_tokens=i), None) for i in range(1, 6)))
    assert [(finding.code, finding.count) for finding in contract.findings] == [
        (TRAINERS, 5),
        ("harness_output_cap", 5),
    ]
    assert "max_tokens is 1:" in contract.warnings[0]["message"]


def test_of_one_kind_few_places_are_kept_and_the_others_counted() -> None:
    places = 3 * MAX_PLACES
    history = [QUESTION] * places
    inserted = [(body(*history[:at], MORE, *history[at:]), None) for at in range(places)]
    contract = session((body(*history), ANSWER), *inserted, (body(*history, ANSWER, MORE, seed=1), None))
    kinds = [finding.code for finding in contract.findings]
    assert kinds == ["rewritten_history"] * MAX_PLACES + [TRAINERS, "rewritten_history"]
    last = contract.findings[-1]
    assert (last.field, last.count) == ("", places - MAX_PLACES)
    assert f"more findings of this kind, the first of them in call {MAX_PLACES + 1}" in last.message


@pytest.mark.parametrize("document", [None, [], "x", 7, {}, {"messages": None}, {"messages": {}, "tools": 3}])
def test_a_body_that_no_model_answers_is_no_finding(document: object) -> None:
    contract = SessionContract()
    contract.began(0, document)
    contract.answered(0, "no message")
    contract.ended(0)
    contract.ended(0)
    assert not contract.findings


def test_findings_say_in_json_what_the_platform_reads() -> None:
    finding = Finding(code="changed_tools", severity="error", field="tools", message="text", call=3, count=2)
    assert finding.to_json() == {"code": "changed_tools", "field": "tools", "message": "text"}


def test_a_session_of_many_calls_stays_small() -> None:
    calls = 150
    tracemalloc.start()
    try:
        contract = SessionContract()
        messages: list[Message] = []
        for number in range(calls):
            messages.append({"role": "user", "content": f"{number} " + "x" * 1000})
            contract.began(number, body(*messages))
            contract.answered(number, {"role": "assistant", "content": str(number)})
            contract.ended(number)
            messages.append({"role": "assistant", "content": str(number)})
        del messages
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert not contract.findings
    assert held < 32 * 1024
