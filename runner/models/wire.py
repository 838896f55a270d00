"""Bodies of an OpenAI-compatible server: completions whole and as server-sent events, errors, models, embeddings.

Ids are made from the request, so that the same conversation has the same transcript in every run.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import struct
import time
from collections.abc import Iterator, Sequence
from typing import Final

from runner.models.answer import Call, Completion
from runner.models.script import JsonValue, Usage

EMBEDDING_SIZE: Final = 64
"""Dimensions unless the request says otherwise; enough that different words rarely collide."""

ERROR_TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "invalid_request_error",
    405: "invalid_request_error",
    413: "invalid_request_error",
    429: "rate_limit_error",
}

JsonObject = dict[str, JsonValue]


def error_body(
    status: int, message: str, *, kind: str | None = None, param: str | None = None, code: str | None = None
) -> JsonObject:
    """Return OpenAI's error object for a status."""
    error_type = kind or ERROR_TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return {"error": {"message": message, "type": error_type, "param": param, "code": code}}


def models_body(names: Sequence[str]) -> JsonObject:
    """Return the list of models."""
    return {
        "object": "list",
        "data": [{"id": name, "object": "model", "created": 0, "owned_by": "benchmax"} for name in names],
    }


def completion_body(key: str, model: str, completions: Sequence[Completion]) -> JsonObject:
    """Return a whole chat completion; `key` identifies the request and its sample."""
    return {
        "id": _id("chatcmpl", key),
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model,
        "choices": [
            {
                "index": index,
                "message": {
                    "role": "assistant",
                    "content": completion.text,
                    "refusal": None,
                    **_tool_calls(key, index, completion),
                },
                "logprobs": None,
                "finish_reason": completion.finish_reason,
            }
            for index, completion in enumerate(completions)
        ],
        "usage": _usage(completions),
    }


def completion_events(
    key: str, model: str, completions: Sequence[Completion], *, include_usage: bool
) -> Iterator[bytes]:
    """Yield a chat completion as server-sent events, word by word."""
    head: JsonObject = {
        "id": _id("chatcmpl", key),
        "object": "chat.completion.chunk",
        "created": int(time.time()),
        "model": model,
    }
    if include_usage:
        head["usage"] = None

    def event(index: int, delta: JsonObject, finish_reason: str | None = None) -> bytes:
        choice: JsonObject = {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return _event({**head, "choices": [choice]})

    for index, completion in enumerate(completions):
        yield event(index, {"role": "assistant", "content": None if completion.text is None else ""})
        for word in re.findall(r"\s*\S+|\s+$", completion.text or ""):
            yield event(index, {"content": word})
        for position, call in enumerate(completion.calls):
            first = {"index": position, **_tool_call(key, index, position, call, arguments="")}
            yield event(index, {"tool_calls": [first]})
            half = len(call.arguments) // 2
            for part in (call.arguments[:half], call.arguments[half:]):
                rest: JsonObject = {"index": position, "function": {"arguments": part}}
                yield event(index, {"tool_calls": [rest]})
        yield event(index, {}, completion.finish_reason)
    if include_usage:
        yield _event({**head, "choices": [], "usage": _usage(completions)})
    yield b"data: [DONE]\n\n"


def embeddings_body(model: str, texts: Sequence[str], *, size: int, as_base64: bool) -> JsonObject:
    """Return one unit vector per text; texts that share words are near each other."""
    data: list[JsonValue] = []
    for index, text in enumerate(texts):
        vector = _embedding(text, size)
        packed = base64.b64encode(struct.pack(f"<{size}f", *vector)).decode("ascii")
        values: list[JsonValue] = [*vector]
        data.append({"object": "embedding", "index": index, "embedding": packed if as_base64 else values})
    tokens = sum(-(-len(text) // 4) for text in texts)
    return {
        "object": "list",
        "data": data,
        "model": model,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }


def _embedding(text: str, size: int) -> list[float]:
    vector = [0.0] * size
    for word in re.findall(r"\w+", text.lower()) or [text]:
        digest = hashlib.sha256(word.encode("utf-8", "replace")).digest()
        vector[int.from_bytes(digest[:4]) % size] += 1.0 if digest[4] % 2 else -1.0
    length = math.sqrt(sum(v * v for v in vector))
    if length == 0.0:
        # the words cancelled each other out; any fixed direction will do
        return [1.0] + [0.0] * (size - 1)
    return [v / length for v in vector]


def _usage(completions: Sequence[Completion]) -> JsonObject:
    usages: list[Usage] = [completion.usage for completion in completions]
    prompt = usages[0].prompt_tokens
    written = sum(usage.completion_tokens for usage in usages)
    return {"prompt_tokens": prompt, "completion_tokens": written, "total_tokens": prompt + written}


def _tool_calls(key: str, index: int, completion: Completion) -> JsonObject:
    if not completion.calls:
        return {}
    return {
        "tool_calls": [
            _tool_call(key, index, position, call, arguments=call.arguments)
            for position, call in enumerate(completion.calls)
        ]
    }


def _tool_call(key: str, index: int, position: int, call: Call, *, arguments: str) -> JsonObject:
    return {
        "id": call.id or _id("call", f"{key}/{index}/{position}", separator="_"),
        "type": "function",
        "function": {"name": call.name, "arguments": arguments},
    }


def _event(body: JsonObject) -> bytes:
    return b"data: " + json.dumps(body, ensure_ascii=False).encode("utf-8", "replace") + b"\n\n"


def _id(prefix: str, key: str, *, separator: str = "-") -> str:
    return f"{prefix}{separator}{hashlib.sha256(key.encode()).hexdigest()[:24]}"
