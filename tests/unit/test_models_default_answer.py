"""What the mock answers without a script."""

from __future__ import annotations

import json
import operator
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.models.arithmetic import find_numbers, find_problem
from runner.models.chat import decode_chat_request
from runner.models.default_answer import default_reply
from runner.models.schema_values import SchemaValues
from runner.models.script import Reply

NUMBERS = {
    "type": "object",
    "properties": {"left": {"type": "number"}, "right": {"type": "number"}},
    "required": ["left", "right"],
}
OPERATIONS = {"add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "divide": operator.truediv}


def tool(name: str, parameters: dict[str, Any] | None = None, description: str = "") -> dict[str, Any]:
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": parameters or NUMBERS},
    }


def reply(text: str, sample: int = 0, **fields: Any) -> Reply:
    messages = fields.pop("messages", [{"role": "user", "content": text}])
    return default_reply(decode_chat_request({"model": "m", "messages": messages, **fields}), sample)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("What is 6 * 7?", 42),
        ("6 × 7", 42),
        ("6 times 7, please", 42),
        ("What is 12 divided by 5?", Fraction(12, 5)),
        ("(3 + 4) * 5 - 2", 33),
        ("2^10", 1024),
        ("1,200 + 34", 1234),
        ("0.1 + 0.2", Fraction(3, 10)),
        ("-3 + 1", -2),
        ("Solve for x: 3x + 4 = 19", 5),
        ("20 - y = 5", 15),
        ("2*(x + 1) = 8", 3),
        ("x / 4 = 3", 12),
        ("5 / 0 or else 5 * 0", 0),
    ],
)
def test_arithmetic_is_found_and_worked_out_exactly(text: str, value: Fraction) -> None:
    problem = find_problem(text)
    assert problem is not None
    assert problem.value == value


@pytest.mark.parametrize(
    "text",
    ["", "hello", "42", "x = y", "x*x = 4", "0*x = 3", "9 ** 9 ** 9", "1 +", "7 ** 999999999", "1e999999999 = x", "("],
)
def test_what_is_no_arithmetic_is_left_alone(text: str) -> None:
    assert find_problem(text) is None


@given(st.text(alphabet="0123456789+-*/()^%.,x= e\n", max_size=300))
def test_no_text_makes_arithmetic_fail(text: str) -> None:
    find_problem(text)
    find_numbers(text)


def test_one_sample_in_four_of_a_question_is_wrong() -> None:
    for question in ("What is 6 * 7?", "What is 40 + 2?", "84 / 2"):
        texts = [reply(question, sample).text or "" for sample in range(8)]
        assert sum("42" in text for text in texts) == 6
        assert texts[:4] == texts[4:]


def test_the_same_request_and_sample_give_the_same_answer() -> None:
    assert reply("What is 1 + 1?", 2) == reply("What is 1 + 1?", 2)


def test_the_form_that_the_conversation_asks_for_is_kept() -> None:
    for wanted, form in (("<answer>", "<answer>42</answer>"), ("\\boxed{}", "\\boxed{42}"), ("Answer:", "Answer: 42")):
        texts = {reply(f"Use {wanted}. What is 6 * 7?", sample).text for sample in range(4)}
        assert form in texts


def conversation(question: str, tools: list[dict[str, Any]], results: list[str] | None = None) -> list[dict[str, Any]]:
    """Talk until there is a text, running the arithmetic tools; `results` replaces what they give."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": question}]
    for turn in range(10):
        answer = reply("", 1, messages=messages, tools=tools)
        if not answer.tool_calls:
            messages.append({"role": "assistant", "content": answer.text})
            return messages
        call = answer.tool_calls[0]
        arguments = call.arguments or {}
        function = {"name": call.name, "arguments": json.dumps(arguments)}
        messages.append(
            {"role": "assistant", "content": None, "tool_calls": [{"id": f"c{turn}", "function": function}]}
        )
        if results is not None:
            content = results[turn]
        else:
            content = json.dumps({"value": OPERATIONS[call.name](*arguments.values())})
        messages.append({"role": "tool", "tool_call_id": f"c{turn}", "content": content})
    raise AssertionError("the mock never stopped calling")


def called(messages: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    calls = [message["tool_calls"][0]["function"] for message in messages if message.get("tool_calls")]
    return [(call["name"], json.loads(call["arguments"])) for call in calls]


def test_arithmetic_is_done_step_by_step_with_the_tools_that_fit() -> None:
    messages = conversation("What is (3 + 4) * 5 - 2?", [tool(name) for name in OPERATIONS])
    assert called(messages) == [
        ("add", {"left": 3, "right": 4}),
        ("multiply", {"left": 7, "right": 5}),
        ("subtract", {"left": 35, "right": 2}),
    ]
    assert "33" in messages[-1]["content"]


def test_a_tool_that_takes_an_expression_gets_the_whole() -> None:
    parameters = {"type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]}
    messages = conversation("What is (3 + 4) * 5?", [tool("calculate", parameters)], ["35"])
    assert called(messages) == [("calculate", {"expression": "(3 + 4) * 5"})]


def test_other_questions_go_to_the_tool_with_most_words_in_common() -> None:
    city = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    tools = [tool("send_mail", city), tool("get_weather", city, "Current weather of a city")]
    messages = conversation('What is the weather in "Oslo"?', tools, ["Rain"])
    assert called(messages) == [("get_weather", {"city": "Oslo"})]
    assert "Rain" in messages[-1]["content"]


def test_a_failed_call_is_made_once_more_and_then_given_up() -> None:
    failing = conversation("6 * 7", [tool("multiply")], ["Unknown tool: multiply", '{"error": "no"}'])
    assert len(called(failing)) == 2
    assert "could not help" in failing[-1]["content"]
    recovering = conversation("6 * 7", [tool("multiply")], ['{"error": "no"}', "42"])
    assert len(called(recovering)) == 2
    assert "42" in recovering[-1]["content"]


def test_no_tool_is_called_when_the_request_forbids_it() -> None:
    answer = reply("6 * 7", 1, tools=[tool("multiply")], tool_choice="none")
    assert answer.tool_calls == []


def test_values_follow_the_schema_and_use_the_question() -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "$defs": {"unit": {"enum": ["celsius", "fahrenheit"]}},
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer", "minimum": 1},
            "unit": {"$ref": "#/$defs/unit"},
            "exact": {"type": "boolean"},
            "limit": {"type": ["integer", "null"], "default": 5},
            "fixed": {"const": 9},
            "tags": {"type": "array", "items": {"type": "string", "default": "t"}},
            "place": {"type": "object", "properties": {"height": {"anyOf": [{"type": "number"}]}}},
            "skipped": {"type": "string"},
        },
        "required": ["city", "days", "unit", "exact", "limit", "fixed", "tags", "place"],
    }
    assert SchemaValues("'Oslo' for 3 days in Fahrenheit").object_for(schema) == {
        "city": "Oslo",
        "days": 3,
        "unit": "fahrenheit",
        "exact": True,
        "limit": 5,
        "fixed": 9,
        "tags": ["t"],
        "place": {"height": 1},
    }


def test_a_list_of_numbers_takes_all_of_them() -> None:
    schema: dict[str, Any] = {"properties": {"values": {"type": "array", "items": {"type": "integer"}}}}
    assert SchemaValues("the mean of 1, 2 and 6").object_for(schema) == {"values": [1, 2, 6]}


def test_a_schema_that_contains_itself_ends() -> None:
    schema: dict[str, Any] = {"properties": {"next": {"$ref": "#"}}}
    assert "next" in SchemaValues("x").object_for(schema)


def test_a_wanted_json_answer_is_json() -> None:
    assert json.loads(reply("6 * 7", response_format={"type": "json_object"}).text or "") == {"answer": 42}
    wanted = {"name": "n", "schema": {"properties": {"score": {"type": "integer"}}, "required": ["score"]}}
    answer = reply("Score it from 0 to 5", response_format={"type": "json_schema", "json_schema": wanted})
    assert json.loads(answer.text or "") == {"score": 0}


def test_choices_and_counts_are_guessed_differently_by_siblings() -> None:
    for question, options in (
        ("True or false: 7 is prime", {"True", "false"}),
        ("Which?\nA) one\nB) two\nC) three", {"A", "B", "C"}),
        ("How many times does r occur?", {"1", "2", "3", "4"}),
    ):
        texts = [reply(f"Reply with Answer: ...\n{question}", sample).text for sample in range(12)]
        assert set(texts) == {f"Answer: {option}" for option in options}


def test_other_texts_get_a_sentence_about_the_question() -> None:
    assert "capital Norway" in (reply("What is the capital of Norway?").text or "")
    assert reply("hi").text
