"""Requests that an OpenAI server refuses are refused with status 400, a path and a code."""

from __future__ import annotations

from typing import Any

import pytest

from runner.models.chat import BadRequestError, decode_chat_request, decode_json_body

USER = {"role": "user", "content": "hi"}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CALLING = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "1"}
VALID: dict[str, Any] = {"model": "m", "messages": [USER]}
TOOL = {"type": "function", "function": {"name": "f"}}


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"model": None}, "model", "invalid_type"),
        ({"model": ""}, "model", "invalid_value"),
        ({"messages": []}, "messages", "invalid_value"),
        ({"messages": "hi"}, "messages", "invalid_type"),
        ({"messages": [{"content": "hi"}]}, "messages[0].role", "missing_required_parameter"),
        ({"messages": [USER, {"role": "wizard", "content": "x"}]}, "messages[1].role", "invalid_value"),
        ({"messages": [{"role": "user", "content": None}]}, "messages[0].content", None),
        ({"messages": [{"role": "user", "content": 7}]}, "messages[0].content", "invalid_type"),
        ({"messages": [USER, {"role": "assistant", "content": None}]}, "messages[1].content", None),
        ({"messages": [USER, RESULT]}, "messages[1]", None),
        ({"messages": [USER, CALLING, RESULT, RESULT]}, "messages[3]", None),
        ({"messages": [USER, CALLING]}, "messages[1]", None),
        ({"messages": [USER, CALLING, USER]}, "messages[2]", None),
        ({"messages": [USER, CALLING, {"role": "tool", "content": "1"}]}, "messages[2].tool_call_id", None),
        ({"messages": [{**USER, "tool_calls": [CALL]}]}, "messages[0].tool_calls", None),
        ({"tools": []}, "tools", "invalid_value"),
        ({"tools": [{"type": "function", "function": {"name": "no spaces"}}]}, "tools[0].function.name", None),
        ({"tool_choice": "auto"}, "tool_choice", None),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "g"}}}, "tool_choice", None),
        ({"max_tokens": 0}, "max_tokens", "invalid_value"),
        ({"max_completion_tokens": "5"}, "max_completion_tokens", "invalid_type"),
        ({"temperature": 2.5}, "temperature", "invalid_value"),
        ({"n": 0}, "n", "invalid_value"),
        ({"stream": "yes"}, "stream", "invalid_type"),
        ({"stream_options": {"include_usage": True}}, "stream_options", None),
    ],
)
def test_a_wrong_field_is_named(fields: dict[str, Any], param: str, code: str | None) -> None:
    with pytest.raises(BadRequestError) as caught:
        decode_chat_request({**VALID, **fields})
    assert caught.value.param == param
    if code is not None:
        assert caught.value.code == code


@pytest.mark.parametrize("missing", ["model", "messages"])
def test_a_missing_field_is_named(missing: str) -> None:
    body: dict[str, Any] = {"model": "m", "messages": [USER]}
    del body[missing]
    with pytest.raises(BadRequestError) as caught:
        decode_chat_request(body)
    assert (caught.value.param, caught.value.code) == (missing, "missing_required_parameter")


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b"\xff", b"[" * 100_000])
def test_a_body_that_is_no_json_object_is_refused(body: bytes) -> None:
    with pytest.raises(BadRequestError, match="JSON"):
        decode_json_body(body)


def test_a_whole_tool_conversation_is_accepted_and_unknown_fields_are_ignored() -> None:
    body: dict[str, Any] = {
        "model": "m",
        "messages": [{"role": "system", "content": "s"}, {**USER, "name": "ann"}, CALLING, RESULT],
        "tools": [TOOL],
        "tool_choice": "auto",
        "stream": None,
        "temperature": 1,
        "top_p": 0.5,
        "user": "x",
    }
    request = decode_chat_request(body)
    assert (request.user, request.system, request.turn) == ("hi", "s", 2)
    assert [tool.name for tool in request.offered] == ["f"]


def test_content_parts_are_joined_and_images_count_as_nothing() -> None:
    parts: list[Any] = [
        {"type": "text", "text": "a"},
        {"type": "image_url", "image_url": {"url": "x"}},
        {"type": "text", "text": "b"},
    ]
    request = decode_chat_request({"model": "m", "messages": [{"role": "user", "content": parts}]})
    assert request.user == "ab"


def test_tool_choice_narrows_what_is_offered() -> None:
    tools = [TOOL, {"type": "function", "function": {"name": "g"}}]
    choices: list[tuple[Any, list[str]]] = [
        ("none", []),
        ("required", ["f", "g"]),
        ({"type": "function", "function": {"name": "g"}}, ["g"]),
    ]
    for choice, names in choices:
        body: dict[str, Any] = {"model": "m", "messages": [USER], "tools": tools, "tool_choice": choice}
        assert [tool.name for tool in decode_chat_request(body).offered] == names
