"""A rollout's conversation as its model calls tell it, for an attempt that shows none.

Comes in: the traces of a session. Goes out: the messages of its last chat request, and the answer. What a worker or a
server wrote is taken for JSON only within the bounds of a transcript, which are told before anything is built of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from runner.gateway.assembler import AnswerAssembler, answer_message
from runner.gateway.events import event_data, split_events
from runner.gateway.exchange import CallTrace
from runner.gateway.session import is_chat
from runner.limits import MAX_TRANSCRIPT_VALUES, VALUE_BYTES
from runner.transcript import is_flat, values


@dataclass(frozen=True, slots=True)
class Retold:
    """A conversation.

    Args:
        messages: Its messages; empty where they could not be kept.
        omitted_bytes: Size of what was left out, as it was sent.
        held_bytes: What the messages take in this process, at most.
    """

    messages: list[Any]
    omitted_bytes: int
    held_bytes: int


def retold(traces: Sequence[CallTrace], max_bytes: int) -> Retold | None:
    """Tell what was said in a session.

    Args:
        traces: Its calls, in order; also calls of other kinds.
        max_bytes: The most that a request may have to be shown.

    Returns:
        The conversation up to its last answer; `None` if no chat was asked for.
    """
    last = max(
        (trace for trace in traces if is_chat(trace.call.route)), key=lambda trace: trace.call.number, default=None
    )
    if last is None:
        return None
    request = last.call.body
    # with a part left out it is no JSON any more
    document = _decoded(request, max_bytes)
    messages = document.get("messages") if isinstance(document, dict) else None
    if not isinstance(messages, list):
        return Retold([], len(request) + last.omitted_bytes, 0)
    answer = _answer(last, max_bytes)
    held = sum(len(data) + VALUE_BYTES * values(data, exact=False) for data in (request, last.answer))
    return Retold([*messages, *([] if answer is None else [answer])], last.omitted_bytes, held)


def _answer(trace: CallTrace, max_bytes: int) -> dict[str, object] | None:
    if trace.status != 200:
        return None
    if not trace.streamed:
        return answer_message(_decoded(trace.answer, max_bytes))
    assembler = AnswerAssembler()
    for event in split_events(trace.answer[:max_bytes]):
        assembler.feed(_decoded(event_data(event), max_bytes))
    return assembler.message


def _decoded(data: bytes, max_bytes: int) -> object:
    """Decode JSON within the bounds of a transcript; `None` if it is none, or beyond them."""
    if len(data) > max_bytes or values(data, exact=True) > MAX_TRANSCRIPT_VALUES or not is_flat(data):
        return None
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
