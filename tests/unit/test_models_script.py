"""The mock's script: what is accepted, how errors name their place, and which rule answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from runner.errors import UsageError
from runner.models import script as script_module
from runner.models.answer import Answer, Completion, answer
from runner.models.chat import decode_chat_request
from runner.models.script import HttpError, RawBody, Script, load_script

TOOL = {"type": "function", "function": {"name": "multiply", "parameters": {"type": "object", "properties": {}}}}


def loaded(tmp_path: Path, content: dict[str, Any]) -> Script:
    path = tmp_path / "script.json"
    path.write_text(json.dumps(content))
    return load_script(path)


def rules(tmp_path: Path, *rows: dict[str, Any], **top: Any) -> Script:
    return loaded(tmp_path, {"rules": list(rows), **top})


def asked(text: str = "hello", *, messages: list[dict[str, Any]] | None = None, **fields: Any) -> Any:
    body = {"model": "m", "messages": messages or [{"role": "user", "content": text}], **fields}
    return decode_chat_request(body)


def text_of(result: Answer) -> str | None:
    assert isinstance(result.action, Completion)
    return result.action.text


def after_tool(result: str) -> list[dict[str, Any]]:
    call = {"id": "c1", "type": "function", "function": {"name": "multiply", "arguments": '{"a":6}'}}
    return [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "6 * 7"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": result},
    ]


def test_json_and_toml_mean_the_same(tmp_path: Path) -> None:
    rule = {"when": {"user": "a+", "turn": 1}, "reply": {"text": "b"}}
    (tmp_path / "s.toml").write_text('[[rules]]\nwhen = { user = "a+", turn = 1 }\nreply = { text = "b" }\n')
    assert load_script(tmp_path / "s.toml") == rules(tmp_path, rule)


def test_the_examples_in_the_documentation_are_valid(tmp_path: Path) -> None:
    documentation = script_module.__doc__ or ""
    block = [line[4:] for line in documentation.splitlines() if line.startswith("    ") or not line]
    (tmp_path / "s.toml").write_text("\n".join(block))
    script = load_script(tmp_path / "s.toml")
    assert len(script.rules) == 3
    first = answer(script, asked("6 * 7", tools=[TOOL]), 0).action
    assert isinstance(first, Completion)
    assert [(c.name, c.arguments) for c in first.calls] == [("multiply", '{"left": 6, "right": 7}')]
    assert text_of(answer(script, asked(messages=after_tool('{"value": 42}')), 0)) == "The answer is 42."


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"rule": []}, "at the top level: Object contains unknown field `rule`"),
        ({"format": 2}, "at format"),
        ({"latency_s": -1}, "at latency_s"),
        ({"rules": [{"reply": {"text": "x"}}, {"wen": {}}]}, "at rules[1]: Object contains unknown field `wen`"),
        ({"rules": [{"when": {"usr": "x"}, "reply": "default"}]}, "at rules[0].when"),
        ({"rules": [{"when": {"user": "("}, "reply": "default"}]}, "`user` is not a regular expression"),
        ({"rules": [{"when": {"tools": "("}, "reply": "default"}]}, "`tools` is not a regular expression"),
        ({"rules": [{"when": {"turn": 0}, "reply": "default"}]}, "at rules[0].when.turn"),
        ({"rules": [{"when": {"sample": True}, "reply": "default"}]}, "at rules[0].when.sample"),
        ({"rules": [{}]}, "exactly one of `reply`, `error`, `raw` and `drop`, found none"),
        ({"rules": [{"reply": "default", "drop": "before"}]}, "found `reply` and `drop`"),
        ({"rules": [{"reply": "defualt"}]}, "at rules[0].reply"),
        ({"rules": [{"reply": []}]}, "`reply` is an empty list"),
        ({"rules": [{"reply": {}}]}, "needs `text`, `tool_calls` or both"),
        ({"rules": [{"reply": {"text": 3}}]}, "at rules[0].reply.text"),
        ({"rules": [{"reply": {"tool_calls": [{"arguments": {}}]}}]}, "at rules[0].reply.tool_calls[0]"),
        (
            {"rules": [{"reply": {"tool_calls": [{"name": "f", "arguments": {}, "raw_arguments": ""}]}}]},
            "`arguments` and `raw_arguments` exclude each other",
        ),
        ({"rules": [{"error": {"status": 200}}]}, "at rules[0].error.status"),
        ({"rules": [{"drop": "later"}]}, "at rules[0].drop"),
        ({"rules": [{"reply": {"text": "{nam}"}, "when": {"user": "(?P<name>x)"}}]}, "placeholder `{nam}`"),
        ({"rules": [{"reply": {"text": "{2}"}, "when": {"user": "(x)"}}]}, "placeholder `{2}`"),
        ({"rules": [{"reply": {"tool_calls": [{"name": "f", "arguments": {"a": [{"b": "{c}"}]}}]}}]}, "`{c}`"),
    ],
)
def test_an_error_names_the_file_and_the_place(tmp_path: Path, content: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        loaded(tmp_path, content)
    assert str(tmp_path / "script.json") in str(caught.value)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("s.json", b'{"rules": [', "line 1"),
        ("s.json", b"[" * 100_000, "is not JSON"),
        ("s.json", b"\xff", "is not JSON"),
        ("s.json", b"[]", "at the top level"),
        ("s.toml", b"rules = [", "is not TOML"),
        ("s.yaml", b"", "no known suffix"),
        ("s.json", b" " * (1024 * 1024 + 1), "1048577 bytes"),
    ],
)
def test_a_file_that_is_no_script_is_one_clear_error(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError) as caught:
        load_script(tmp_path / name)
    assert said in str(caught.value)
    assert name in str(caught.value)


@pytest.mark.parametrize("name", ["missing.json", "folder.json"])
def test_a_file_that_cannot_be_read_is_one_clear_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder.json").mkdir()
    with pytest.raises(UsageError, match="cannot be read"):
        load_script(tmp_path / name)


def test_the_first_rule_that_matches_answers(tmp_path: Path) -> None:
    script = rules(
        tmp_path,
        {"when": {"user": "blue"}, "reply": {"text": "one"}},
        {"name": "second", "when": {"user": "b"}, "reply": {"text": "two"}},
        {"reply": {"text": "three"}},
    )
    assert text_of(answer(script, asked("blue"), 0)) == "one"
    assert answer(script, asked("black"), 0).rule == "second"
    assert text_of(answer(script, asked("red"), 0)) == "three"
    assert answer(script, asked("red"), 0).rule == "rules[2]"


@pytest.mark.parametrize(
    ("when", "holds"),
    [
        ({"user": "^6"}, True),
        ({"user": "Be brief"}, False),
        ({"last": "42"}, True),
        ({"last": "6"}, False),
        ({"system": "brief"}, True),
        ({"system": "6"}, False),
        ({"conversation": r"user: 6 \* 7\nassistant: multiply\(\{\"a\":6\}\)\ntool: 42"}, True),
        ({"conversation": "brief.*42"}, True),
        ({"conversation": "42.*brief"}, False),
        ({"model": "^m$"}, True),
        ({"model": "gpt"}, False),
        ({"tools": True}, True),
        ({"tools": False}, False),
        ({"tools": "mult"}, True),
        ({"tools": "add"}, False),
        ({"turn": 2}, True),
        ({"turn": [1, 2]}, True),
        ({"turn": 1}, False),
        ({"sample": 5}, True),
        ({"sample": [4, 6]}, False),
        ({"user": "6", "sample": 4}, False),
    ],
)
def test_each_condition_looks_at_its_part_of_the_request(tmp_path: Path, when: dict[str, Any], holds: bool) -> None:
    script = rules(tmp_path, {"when": when, "reply": {"text": "matched"}}, {"reply": {"text": "not"}})
    request = asked(messages=after_tool("42"), tools=[TOOL])
    assert text_of(answer(script, request, 5)) == ("matched" if holds else "not")


def test_turns_are_counted_from_the_last_user_message(tmp_path: Path) -> None:
    script = rules(tmp_path, {"reply": {"text": "{turn}"}})
    shots = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]
    assert text_of(answer(script, asked(messages=shots), 0)) == "1"


def test_placeholders_are_groups_and_facts(tmp_path: Path) -> None:
    script = rules(
        tmp_path,
        {
            "when": {"user": r"(\w+) and (?P<second>\w+)", "conversation": "(?P<who>user)"},
            "reply": {"text": '{0}|{1}|{second}|{who}|{user}|{last}|{model}|{turn}|{sample}|{{second}}|{"a": {}}'},
        },
    )
    expected = 'cats and dogs|cats|dogs|user|cats and dogs|cats and dogs|m|1|7|{second}|{"a": {}}'
    assert text_of(answer(script, asked("cats and dogs"), 7)) == expected


def test_a_captured_text_is_not_filled_in_again(tmp_path: Path) -> None:
    script = rules(tmp_path, {"when": {"user": "(?P<all>.*)"}, "reply": {"text": "{all}"}})
    assert text_of(answer(script, asked("{model} {all}"), 0)) == "{model} {all}"


def test_arguments_are_templates_and_can_be_numbers(tmp_path: Path) -> None:
    call = {
        "name": "f",
        "arguments": {"n": "{a:number}", "s": "{a}", "x": "{b:number}", "deep": [{"k": "n={a}"}], "t": True},
    }
    raw = {"name": "g", "raw_arguments": '{"a": {a}', "id": "mine"}
    when = {"user": r"(?P<a>-?\d+) and (?P<b>\S+)"}
    script = rules(tmp_path, {"when": when, "reply": {"tool_calls": [call, raw]}})
    action = answer(script, asked("-3 and 2.5"), 0).action
    assert isinstance(action, Completion)
    assert json.loads(action.calls[0].arguments) == {"n": -3, "s": "-3", "x": 2.5, "deep": [{"k": "n=-3"}], "t": True}
    assert (action.calls[1].arguments, action.calls[1].id) == ('{"a": -3', "mine")
    assert action.finish_reason == "tool_calls"


def test_a_list_of_replies_is_dealt_over_the_samples(tmp_path: Path) -> None:
    script = rules(tmp_path, {"reply": [{"text": "a"}, {"text": "b"}]})
    assert [text_of(answer(script, asked(), sample)) for sample in range(4)] == ["a", "b", "a", "b"]


def test_errors_raw_bodies_and_drops_are_passed_on(tmp_path: Path) -> None:
    script = rules(
        tmp_path,
        {"when": {"user": "(?P<it>error)"}, "error": {"status": 429, "code": "c", "message": "no {it}"}},
        {"when": {"user": "(raw)"}, "raw": {"body": "{1}", "status": 202, "content_type": "text/plain"}},
        {"when": {"user": "drop"}, "drop": "midway"},
    )
    assert answer(script, asked("error"), 0).action == HttpError(status=429, code="c", message="no error")
    assert answer(script, asked("raw"), 0).action == RawBody(body="raw", status=202, content_type="text/plain")
    assert answer(script, asked("drop"), 0).action == "midway"


def test_latency_is_the_rules_or_the_scripts(tmp_path: Path) -> None:
    script = rules(
        tmp_path,
        {"when": {"user": "slow"}, "reply": "default", "latency_s": 2},
        {"when": {"user": "now"}, "reply": "default", "latency_s": 0},
        latency_s=0.5,
    )
    assert [answer(script, asked(text), 0).latency_s for text in ("slow", "now", "else")] == [2, 0, 0.5]


def test_without_a_matching_rule_the_script_says_what_happens(tmp_path: Path) -> None:
    strict = rules(tmp_path, otherwise="error")
    refused = answer(strict, asked("2 + 2"), 0).action
    assert isinstance(refused, HttpError)
    assert refused.status == 400
    assert "4" in (text_of(answer(Script(), asked("2 + 2"), 1)) or "")


def test_finish_reason_and_usage_can_be_set_and_have_defaults(tmp_path: Path) -> None:
    script = rules(
        tmp_path,
        {"when": {"user": "null"}, "reply": {"text": "x", "finish_reason": None}},
        {"when": {"user": "filter"}, "reply": {"text": "x", "finish_reason": "content_filter"}},
        {
            "when": {"user": "usage"},
            "reply": {"text": "x", "usage": {"prompt_tokens": 1, "completion_tokens": 2}},
        },
        {"reply": {"text": "12345678"}},
    )
    actions = [answer(script, asked(text), 0).action for text in ("null", "filter", "usage", "else")]
    completions = [action for action in actions if isinstance(action, Completion)]
    assert [c.finish_reason for c in completions] == [None, "content_filter", "stop", "stop"]
    assert (completions[2].usage.prompt_tokens, completions[2].usage.completion_tokens) == (1, 2)
    assert completions[3].usage.completion_tokens == 2
    assert completions[3].usage.prompt_tokens > 0


def test_a_token_limit_cuts_the_answer(tmp_path: Path) -> None:
    script = rules(tmp_path, {"reply": {"text": "é" * 100}})
    action = answer(script, asked("x", max_tokens=50, max_completion_tokens=3), 0).action
    assert isinstance(action, Completion)
    assert (action.text, action.finish_reason) == ("é" * 6, "length")
    assert action.usage.completion_tokens == 3
