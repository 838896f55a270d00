"""The conversation of one session, held against each further request: is it the last one, the answer, and what is new?

Comes in: the messages of each request for an answer, and the answers. Goes out: where a request departs from what went
before, in words. Of messages only numbers are kept, a few kilobytes for a long conversation.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass

from runner.gateway.digests import MAX_MESSAGES, have_ids, of_calls, of_content, of_messages, of_tools


@dataclass(frozen=True, slots=True)
class Departure:
    """Where a request departs from what went before, and how."""

    field: str
    fact: str


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request whose answer is awaited: its call, its messages and its tools."""

    call: int
    messages: array[int]
    tools: array[int]


@dataclass(frozen=True, slots=True)
class _Answered:
    """The last request that was answered, and the answer. `ids` says whether the ids of its calls count."""

    call: int
    messages: array[int]
    content: int
    calls: int
    ids: bool


class History:
    """What the next request has to begin with, and the tools it has to offer."""

    __slots__ = ("_asked", "_last", "_tools", "_tools_of")

    def __init__(self) -> None:
        self._asked: _Asked | None = None
        self._last: _Answered | None = None
        self._tools: array[int] | None = None
        self._tools_of = 0

    def ask(self, call: int, document: Mapping[str, object]) -> tuple[Departure | None, Departure | None]:
        """Take in a request; return where its messages and its tools depart from what went before, if they do.

        Until it is answered it changes nothing: a request that failed may be made again in another way. Of requests
        that are under way at the same time only the newest counts.
        """
        messages, tools = document.get("messages"), document.get("tools")
        asked = self._asked = _Asked(call, of_messages(messages), of_tools(tools))
        rewritten = None if self._last is None else _rewritten(self._last, asked.messages, messages)
        changed = None
        if self._tools is not None and asked.tools != self._tools:
            changed = _changed_tools(self._tools, asked.tools, self._tools_of)
        return rewritten, changed

    def answer(self, call: int, message: Mapping[str, object]) -> None:
        """Take in the model's answer to a request."""
        if self._asked is None or self._asked.call != call:
            return
        asked, self._asked = self._asked, None
        calls = message.get("tool_calls")
        ids = have_ids(calls)
        content = of_content(message.get("content"))
        self._last = _Answered(call, asked.messages, content, of_calls(calls, ids=ids), ids)
        if self._tools is None:
            self._tools, self._tools_of = asked.tools, call


def _rewritten(last: _Answered, now: array[int], messages: object) -> Departure | None:
    before = last.messages
    if now[: len(before)] != before:
        return _earlier(last.call, _pairs(before), _pairs(now))
    at = len(before) // 2
    if at >= MAX_MESSAGES or not isinstance(messages, list):
        return None
    place = f"messages[{at}]"
    if at >= len(messages):
        return Departure(place, f"it ends where the answer of call {last.call} has its place")
    answer = messages[at]
    if not isinstance(answer, dict) or answer.get("role") != "assistant":
        return Departure(place, f"this is no message of the assistant, but the answer of call {last.call} belongs here")
    if of_content(answer.get("content")) != last.content:
        return Departure(f"{place}.content", f"this is not what the model answered in call {last.call}")
    if of_calls(answer.get("tool_calls"), ids=last.ids) != last.calls:
        return Departure(f"{place}.tool_calls", f"these are not the calls that the model made in call {last.call}")
    return None


def _earlier(call: int, before: list[tuple[int, int]], now: list[tuple[int, int]]) -> Departure:
    at = next((i for i, (old, new) in enumerate(zip(before, now, strict=False)) if old != new), len(now))
    place = f"messages[{at}]"
    if at == len(now):
        return Departure(place, f"call {call} had {len(before)} messages, of which only the first {at} are left")
    comes_later = now[at] in before[at + 1 :]
    if comes_later and before[at] in now[at + 1 :]:
        return Departure(place, f"the messages of call {call} stand in another order from here on")
    if comes_later:
        return Departure(place, f"a message that call {call} had here is gone")
    if before[at] in now[at + 1 :]:
        return Departure(place, f"a message was put in here that call {call} did not have")
    if before[at][1] == now[at][1]:
        return Departure(f"{place}.content", f"this differs from what call {call} had here")
    return Departure(place, f"this is another message than call {call} had here")


def _pairs(numbers: array[int]) -> list[tuple[int, int]]:
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def _changed_tools(first: array[int], now: array[int], call: int) -> Departure:
    if sorted(first) == sorted(now):
        return Departure("tools", f"they are those of call {call} in another order")
    if len(first) != len(now):
        return Departure("tools", f"they are {len(now)}, and were {len(first)} in call {call}")
    at = next(i for i, (old, new) in enumerate(zip(first, now, strict=True)) if old != new)
    return Departure(f"tools[{at}]", f"this is not what call {call} offered here")
