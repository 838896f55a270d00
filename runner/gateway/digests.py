"""Messages and tools of a chat request as numbers that are equal where these mean the same.

Comes in: decoded JSON that a client sent or a server answered, of any shape. Goes out: 64-bit numbers, good within this
process. What clients change of a message without changing what it says makes no difference: members that are null or
empty lists, a text given whole or as text parts, marks for a prompt cache, and reasoning, which is not sent back.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Mapping
from typing import Final

import msgspec

MAX_MESSAGES: Final = 4_096
"""Messages of one request that are looked at, 16 bytes each; conversations beyond have no room in any context."""

MAX_PARTS: Final = 64
"""Parts of one content, and calls of one message, that are looked at one by one; more are compared as they stand."""

MAX_CALLS: Final = 1_000
"""The same for the calls of an answer, which are looked at once."""

MAX_TOOLS: Final = 1_024
"""Tools told apart in one request; more are compared as one."""

_IGNORED: Final = frozenset(
    {"content", "cache_control", "reasoning", "reasoning_content", "reasoning_details", "thinking", "thinking_blocks"}
)
_encoder: Final = msgspec.json.Encoder(order="deterministic")


def of_messages(messages: object) -> array[int]:
    """Return two numbers for each message: of its content, and of all else in it."""
    numbers = array("q")
    if isinstance(messages, list):
        for message in messages[:MAX_MESSAGES]:
            if isinstance(message, dict):
                numbers.append(of_content(message.get("content")))
                numbers.append(_of_rest(message))
            else:
                numbers.extend((0, _of_json(message)))
    return numbers


def of_tools(tools: object) -> array[int]:
    """Return a number for each tool; none offered and no list at all are the same."""
    if not tools:
        return array("q")
    if isinstance(tools, list) and len(tools) <= MAX_TOOLS:
        return array("q", map(_of_json, tools))
    return array("q", [_of_json(tools)])


def of_content(content: object) -> int:
    """Return the number of a message's content; none, null and an empty one are the same."""
    if isinstance(content, str):
        return hash(content)
    if not content:
        return hash("")
    if isinstance(content, list) and len(content) <= MAX_PARTS:
        parts = [_without_marks(part) for part in content]
        texts = [_text(part) for part in parts]
        whole = "".join(text for text in texts if text is not None)
        return hash(whole) if None not in texts else _of_json(parts)
    return _of_json(content)


def of_calls(calls: object, *, ids: bool) -> int:
    """Return the number of an answer's tool calls, whose arguments may be written with other spaces.

    Args:
        calls: The member `tool_calls`.
        ids: Whether their ids count.
    """
    if not calls:
        return 0
    if not isinstance(calls, list) or len(calls) > MAX_CALLS:
        return _of_json(calls)
    told: list[object] = []
    for call in calls:
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict):
            told.append(call)
            continue
        arguments = _arguments(function.get("arguments"))
        told.append([call.get("id") if ids else None, call.get("type") or "function", function.get("name"), arguments])
    return _of_json(told)


def have_ids(calls: object) -> bool:
    """Whether each of an answer's tool calls has an id; a client has to make up those that are missing."""
    return isinstance(calls, list) and all(isinstance(call, dict) and bool(call.get("id")) for call in calls)


def _of_rest(message: Mapping[str, object]) -> int:
    role = message.get("role")
    if len(message) == 2 and isinstance(role, str) and "content" in message:
        return hash(role)
    rest = {name: value for name, value in message.items() if value not in (None, []) and name not in _IGNORED}
    if len(rest) == 1 and isinstance(role, str):
        return hash(role)
    calls = rest.get("tool_calls")
    if isinstance(calls, list) and len(calls) <= MAX_PARTS:
        rest["tool_calls"] = [_call(call) for call in calls]
    return _of_json(rest)


def _call(call: object) -> object:
    if not isinstance(call, dict):
        return call
    plain = {name: value for name, value in call.items() if value is not None and name != "index"}
    return {"type": "function"} | plain


def _without_marks(part: object) -> object:
    if not isinstance(part, dict):
        return part
    return {name: value for name, value in part.items() if value is not None and name != "cache_control"}


def _text(part: object) -> str | None:
    if isinstance(part, dict) and len(part) == 2 and part.get("type") == "text":
        text = part.get("text")
        return text if isinstance(text, str) else None
    return None


def _arguments(arguments: object) -> object:
    if not arguments:
        return {}
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments


def _of_json(value: object) -> int:
    try:
        data: bytes | str = _encoder.encode(value)
    except (ValueError, TypeError, OverflowError, RecursionError):
        data = _spelled(value)
    # a text and its bytes have the same hash
    return ~hash(data)


def _spelled(value: object) -> str:
    """JSON that only Python's own encoder makes: of lone surrogates and integers beyond 64 bits."""
    try:
        return json.dumps(value, sort_keys=True)
    except (ValueError, TypeError, RecursionError):
        # deeper than any server reads it; one such value is taken for another
        return ""
