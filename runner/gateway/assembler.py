"""The message that an answer holds: of a whole answer, and of a streamed one put together from its pieces.

Comes in: decoded JSON of a server, of any shape; what is not as it should be is passed over. Goes out: the message of
the first choice, with its text and its tool calls. What clients leave out of a conversation is left out here, too.
"""

from __future__ import annotations

import io
from typing import Final

MAX_CHARS: Final = 8 * 1024 * 1024
"""Characters of a streamed answer that are put together; more than any context holds, and the answer is not judged."""

MAX_CALLS: Final = 1_000
"""Tool calls of one answer that are put together."""


def answer_message(document: object) -> dict[str, object] | None:
    """Return the message of an answer's first choice, if it has one."""
    choice = _first_choice(document)
    message = choice.get("message") if choice is not None else None
    return message if isinstance(message, dict) else None


class _Call:
    """A tool call as far as it has come."""

    __slots__ = ("arguments", "id", "name")

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.arguments = io.StringIO()


class AnswerAssembler:
    """Puts the message of a streamed answer together."""

    __slots__ = ("_calls", "_failed", "_finished", "_room", "_seen", "_text")

    def __init__(self) -> None:
        # many small pieces are no many small objects in it
        self._text = io.StringIO()
        self._calls: dict[int, _Call] = {}
        self._room = MAX_CHARS
        self._seen = False
        self._finished = False
        self._failed = False

    @property
    def finished(self) -> bool:
        """Whether the server said why the answer ended; only usage can follow."""
        return self._finished

    @property
    def message(self) -> dict[str, object] | None:
        """The message so far; `None` if nothing of it has come, the server failed, or it is too long to be kept."""
        if not self._seen or self._failed or self._room < 0:
            return None
        message: dict[str, object] = {"role": "assistant", "content": self._text.getvalue() or None}
        if self._calls:
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments.getvalue()},
                }
                for _, call in sorted(self._calls.items())
            ]
        return message

    def feed(self, chunk: object) -> None:
        """Take in the JSON of one event."""
        if isinstance(chunk, dict) and chunk.get("error"):
            self._failed = True
        choice = _first_choice(chunk)
        if choice is None:
            return
        self._finished = self._finished or isinstance(choice.get("finish_reason"), str)
        delta = choice.get("delta")
        if not isinstance(delta, dict):
            return
        self._seen = True
        self._add(self._text, delta.get("content"))
        calls = delta.get("tool_calls")
        if isinstance(calls, list):
            for piece in calls:
                self._add_call(piece)

    def _add_call(self, piece: object) -> None:
        if not isinstance(piece, dict):
            return
        call = self._call(piece.get("index"), piece.get("id"))
        if call is None:
            self._failed = True
            return
        call.id = self._replaced(call.id, piece.get("id"))
        function = piece.get("function")
        if isinstance(function, dict):
            name = function.get("name")
            # mostly whole in the first piece; some servers repeat it, few cut it
            if name != call.name:
                call.name += self._replaced("", name)
            self._add(call.arguments, function.get("arguments"))

    def _call(self, index: object, call_id: object) -> _Call | None:
        if type(index) is not int:
            # without an index, another id is another call
            last = next(reversed(self._calls), -1)
            new = last < 0 or (bool(call_id) and call_id != self._calls[last].id)
            index = last + 1 if new else last
        call = self._calls.get(index)
        if call is None and len(self._calls) < MAX_CALLS:
            call = self._calls[index] = _Call()
        return call

    def _replaced(self, before: str, text: object) -> str:
        if not isinstance(text, str) or not text:
            return before
        self._room -= len(text)
        return text if self._room >= 0 else before

    def _add(self, whole: io.StringIO, text: object) -> None:
        if isinstance(text, str) and text:
            self._room -= len(text)
            if self._room >= 0:
                whole.write(text)


def _first_choice(document: object) -> dict[str, object] | None:
    """The choice with index 0, or the only one without an index."""
    choices = document.get("choices") if isinstance(document, dict) else None
    if not isinstance(choices, list):
        return None
    for choice in choices[:128]:
        if isinstance(choice, dict) and (choice.get("index") or 0) == 0:
            return choice
    return None
