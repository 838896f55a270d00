"""From a request to the answer the script gives: the first rule that matches, its placeholders filled in."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from msgspec import UNSET

from runner.models.arithmetic import find_numbers
from runner.models.chat import BYTES_PER_TOKEN, ChatRequest, token_count_of_bytes
from runner.models.default_answer import default_reply
from runner.models.script import (
    PLACEHOLDER,
    Drop,
    HttpError,
    JsonValue,
    RawBody,
    Reply,
    Rule,
    Script,
    ScriptedCall,
    Usage,
    When,
)

NO_RULE: Final = HttpError(
    status=400, code="no_rule_matches", message="No rule of the mock's script matches this request."
)


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call as it is sent; `arguments` is the JSON text."""

    name: str
    arguments: str
    id: str | None


@dataclass(frozen=True, slots=True)
class Completion:
    """One choice as it is sent, with its token counts."""

    text: str | None
    calls: tuple[Call, ...]
    finish_reason: str | None
    usage: Usage


@dataclass(frozen=True, slots=True)
class Answer:
    """What happens to one request, after `latency_s` seconds."""

    action: Completion | HttpError | RawBody | Drop
    latency_s: float
    rule: str
    """Name or number of the rule, for the log; `default` without one."""


def answer(script: Script, request: ChatRequest, sample: int) -> Answer:
    """Return the script's answer to one sample of a request."""
    for index, rule in enumerate(script.rules):
        if not _holds(rule.when, request, sample):
            continue
        latency_s = script.latency_s if rule.latency_s is None else rule.latency_s
        return Answer(_action(rule, request, sample), latency_s, rule.name or f"rules[{index}]")
    if script.otherwise == "error":
        return Answer(NO_RULE, script.latency_s, "otherwise")
    return Answer(_completion(default_reply(request, sample), request, {}), script.latency_s, "default")


def _holds(when: When, request: ChatRequest, sample: int) -> bool:
    if any(match is None for match in _matches(when, request)):
        return False
    if when.model is not None and re.search(when.model, request.model, re.DOTALL) is None:
        return False
    if isinstance(when.tools, bool) and when.tools != bool(request.offered):
        return False
    if isinstance(when.tools, str):
        pattern = when.tools
        if not any(re.search(pattern, tool.name) for tool in request.offered):
            return False
    return _among(request.turn, when.turn) and _among(sample, when.sample)


def _matches(when: When, request: ChatRequest) -> list[re.Match[str] | None]:
    texts = {
        "user": request.user,
        "last": request.messages[-1].text,
        "system": request.system,
        "conversation": request.conversation if when.conversation is not None else "",
    }
    return [re.search(pattern, texts[field], re.DOTALL) for field, pattern in when.text_patterns()]


def _among(number: int, wanted: int | list[int] | None) -> bool:
    if wanted is None:
        return True
    return number in wanted if isinstance(wanted, list) else number == wanted


def _action(rule: Rule, request: ChatRequest, sample: int) -> Completion | HttpError | RawBody | Drop:
    values = _placeholder_values(rule.when, request, sample)
    if rule.error is not None:
        error = rule.error
        return HttpError(
            status=error.status,
            message=_filled(error.message, values),
            code=error.code,
            type=error.type,
            headers=error.headers,
        )
    if rule.raw is not None:
        raw = rule.raw
        return RawBody(body=_filled(raw.body, values), status=raw.status, content_type=raw.content_type)
    if rule.drop is not None:
        return rule.drop
    reply = rule.reply
    if isinstance(reply, list):
        reply = reply[sample % len(reply)]
    if not isinstance(reply, Reply):
        return _completion(default_reply(request, sample), request, {})
    return _completion(reply, request, values)


def _placeholder_values(when: When, request: ChatRequest, sample: int) -> dict[str, str]:
    values = {
        "user": request.user,
        "last": request.messages[-1].text,
        "model": request.model,
        "turn": str(request.turn),
        "sample": str(sample),
    }
    for index, match in enumerate(_matches(when, request)):
        if match is None:
            continue
        if index == 0:
            values |= {str(n): match[n] or "" for n in range((match.re.groups or 0) + 1)}
        values |= {name: text or "" for name, text in match.groupdict().items()}
    return values


def _filled(text: str, values: Mapping[str, str]) -> str:
    def replaced(match: re.Match[str]) -> str:
        if match[2] is None:
            return f"{{{match[1]}}}"
        return values.get(match[2], match[0])

    return PLACEHOLDER.sub(replaced, text)


def _filled_value(value: JsonValue, values: Mapping[str, str]) -> JsonValue:
    if isinstance(value, list):
        return [_filled_value(item, values) for item in value]
    if isinstance(value, dict):
        return {key: _filled_value(item, values) for key, item in value.items()}
    if not isinstance(value, str):
        return value
    whole = PLACEHOLDER.fullmatch(value)
    if whole is not None and whole[3]:
        numbers = find_numbers(_filled(value, values))
        return numbers[0] if numbers else None
    return _filled(value, values)


def _completion(reply: Reply, request: ChatRequest, values: Mapping[str, str]) -> Completion:
    calls = tuple(_call(call, values) for call in reply.tool_calls)
    text = reply.text if reply.text is None or not values else _filled(reply.text, values)
    finish_reason: str | None = "tool_calls" if calls else "stop"
    limit = request.token_limit
    if (
        limit is not None
        and text is not None
        and not calls
        and len(text.encode("utf-8", "replace")) > limit * BYTES_PER_TOKEN
    ):
        text = text.encode("utf-8", "replace")[: limit * BYTES_PER_TOKEN].decode("utf-8", "ignore")
        finish_reason = "length"
    if reply.finish_reason is not UNSET:
        finish_reason = reply.finish_reason
    written = len((text or "").encode("utf-8", "replace")) + sum(len(c.name) + len(c.arguments) for c in calls)
    usage = reply.usage or Usage(prompt_tokens=request.prompt_tokens(), completion_tokens=token_count_of_bytes(written))
    return Completion(text, calls, finish_reason, usage)


def _call(call: ScriptedCall, values: Mapping[str, str]) -> Call:
    if call.raw_arguments is not None:
        arguments = _filled(call.raw_arguments, values) if values else call.raw_arguments
    else:
        tree = _filled_value(call.arguments or {}, values) if values else call.arguments or {}
        arguments = json.dumps(tree, ensure_ascii=False)
    return Call(call.name, arguments, call.id)
