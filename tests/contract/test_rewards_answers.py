"""What a judge answered: empty, prose, fenced, after thinking, or of the wrong type."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from benchmax.rewards import JudgeError
from benchmax.rewards.answers import json_object
from tests.contract.loopback import ModelServer, Reply, completion
from tests.contract.rewards_lab import judge_at


@pytest.mark.parametrize(
    "reply",
    [
        completion(None),
        completion(""),
        completion(" \n"),
        Reply({"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": []}),
        Reply({"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": None}),
        Reply({"id": "c"}),
        Reply(b"<html>hello</html>", content_type="text/html"),
    ],
)
async def test_an_empty_answer_is_an_error_and_not_asked_for_again(model_server: ModelServer, reply: Reply) -> None:
    model_server.answer = lambda received: reply
    with pytest.raises(JudgeError, match=r"request failed.*empty response"):
        await judge_at(model_server).request_json("p", request_id="r")
    assert len(model_server.requests) == 1


async def test_a_content_that_is_no_text_is_an_error(model_server: ModelServer) -> None:
    wrong: Any = [{"type": "text", "text": "{}"}]
    model_server.answer = lambda received: completion(wrong)
    with pytest.raises(JudgeError, match=r"request failed.*list"):
        await judge_at(model_server).request_json("p", request_id="r")


async def test_the_raw_answer_is_stripped_and_otherwise_unmodified(model_server: ModelServer) -> None:
    content = '<think>{"a": 0}</think>\n```json\n{"a": 1}\n```'
    model_server.answer = lambda received: completion(f"\n {content} \n")
    assert await judge_at(model_server).request_json("p", request_id="r") == ({"a": 1}, content)


async def test_bad_output_is_never_asked_for_again(model_server: ModelServer) -> None:
    model_server.answer = lambda received: completion("I would give it a 7.")
    with pytest.raises(JudgeError, match=r"request failed.*valid JSON object.*give it a 7"):
        await judge_at(model_server).request_json("p", request_id="r")
    assert len(model_server.requests) == 1


FENCE = "```"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"a": 1}', {"a": 1}),
        ('<think>x {"a": 0}\ny</think> {"a": 1}', {"a": 1}),
        ('<think>1</think>{"a":<think>2</think> 1}', {"a": 1}),
        ('<think>unclosed {"a": 1}', {"a": 1}),
        ('<THINK>{"a": 0}</THINK>{"a": 1}', {"a": 0}),
        (f'{FENCE}json\n{{"a": 1}}\n{FENCE}', {"a": 1}),
        (f'{FENCE}\nnot json: {{"a": 1}}\n{FENCE}', {"a": 1}),
        (f'{FENCE}json\r\n{{"a": 1}}\r\n{FENCE}', {"a": 1}),
        (f'{FENCE} {{"a": 1}} {FENCE}', {"a": 1}),
        (f'<think></think>\n{FENCE}\n{{"a": "{chr(0x2028)}"}}\n{FENCE}', {"a": chr(0x2028)}),
        (f'Here it is:\n{FENCE}json\n{{"a": 1}}\n{FENCE}', {"a": 1}),
        (f'{FENCE}\nnothing\n{{"a": 1}}', {"a": 1}),
        (f'{{"a": 1}}\nnothing\n{FENCE}', {"a": 1}),
        ('Verdict: {"a": 1}. And {"a": 2}.', {"a": 1}),
        ('{not json} {"a": 1}', {"a": 1}),
        ('[1, {"a": 1}]', {"a": 1}),
        ('{"a": {"b": 1}} trailing', {"a": {"b": 1}}),
        ('{"a": 1, {"b": 2}', {"b": 2}),
        ('{"a": 1, "a": 2}', {"a": 2}),
        ("[" * 100_000 + '{"a": 1}', {"a": 1}),
    ],
)
def test_the_first_object_is_found_without_think_blocks_and_fences(text: str, found: dict[str, Any]) -> None:
    assert json_object(text) == found


def test_nan_is_read_as_the_standard_parser_does() -> None:
    assert math.isnan(json_object('{"a": NaN}')["a"])


@pytest.mark.parametrize(
    "text",
    [
        "prose",
        "[1, 2]",
        "7",
        '{"a": 1',
        "{'a': 1}",
        '{"a": 1,}',
        '<think>{"a": 1}</think>',
        f'{FENCE}json\n{{"a": 1}}{FENCE}',
        FENCE,
        '{"a": ' + "9" * 5000 + "}",
        '{"a":' * 100_000,
    ],
)
def test_without_an_object_there_is_an_error_and_nothing_is_repaired(text: str) -> None:
    with pytest.raises(ValueError, match="valid JSON object"):
        json_object(text)


def test_many_unclosed_think_tags_take_linear_time() -> None:
    with pytest.raises(ValueError, match="valid JSON object"):
        json_object("<think>" * 200_000)


def test_an_answer_may_be_any_json_object_text() -> None:
    value = {"a": [1, 2.5, None, True, "ü"], "b": {}}
    assert json_object(json.dumps(value)) == value
