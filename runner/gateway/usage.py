"""Tokens that a call took: as the server says, or estimated where it does not."""

from __future__ import annotations

from typing import Final

from runner.gateway.exchange import Usage

BYTES_PER_TOKEN: Final = 4
"""Of English text and code, on the whole; of JSON around it, too."""


def read_usage(answer: object) -> Usage | None:
    """Return the usage that a decoded answer, or an event of a stream, names; `None` where it names none."""
    told = answer.get("usage") if isinstance(answer, dict) else None
    if not isinstance(told, dict):
        return None
    prompt, completion, total = (
        _count(told.get(name)) for name in ("prompt_tokens", "completion_tokens", "total_tokens")
    )
    if prompt is None and completion is None and total is None:
        return None
    prompt, completion = prompt or 0, completion or 0
    # whoever names less in all than in part has not counted
    return Usage(prompt_tokens=prompt, completion_tokens=completion, total_tokens=max(total or 0, prompt + completion))


def estimated_usage(request_bytes: int, answer_bytes: int) -> Usage:
    """Return the usage of a call whose server told none."""
    prompt, completion = -(-request_bytes // BYTES_PER_TOKEN), -(-answer_bytes // BYTES_PER_TOKEN)
    return Usage(prompt_tokens=prompt, completion_tokens=completion, total_tokens=prompt + completion, estimated=True)


def summed(one: Usage, other: Usage) -> Usage:
    """Return the usage of two calls together."""
    return Usage(
        prompt_tokens=one.prompt_tokens + other.prompt_tokens,
        completion_tokens=one.completion_tokens + other.completion_tokens,
        total_tokens=one.total_tokens + other.total_tokens,
        estimated=one.estimated or other.estimated,
    )


def _count(value: object) -> int | None:
    whole = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53
    return value if whole else None  # type: ignore[return-value]  # it was just looked at
