"""The messages of one row: what each role may carry, and which tool result answers which call. Private."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence, Set
from typing import Any, Final

from benchmax.sft.strict_json import Problem, StrictJsonError, kind_of, parse_json, tree_problems

__all__ = ["has_tool_calls", "is_trainable", "message_problems", "unknown_keys"]

_ROLES: Final = ("assistant", "system", "tool", "user")

_QUOTED_ROLES: Final = ", ".join(f'"{role}"' for role in _ROLES)

_UNKNOWN_WEIGHT: Final = "weight is only supported on assistant messages"


def message_problems(messages: Sequence[object], location: str, functions: Set[str] | None) -> Iterator[Problem]:
    """Check messages one after the other, and their tool calls against their results.

    Args:
        messages: The row's messages.
        location: Where the list stands.
        functions: Names of the tools that may be called; `None` if the row has none that could be checked against.
    """
    links = _Links()
    for index, message in enumerate(messages):
        here = f"{location}[{index}]"
        role = message.get("role") if type(message) is dict else None
        if type(role) is not str or role != "tool":
            yield from links.close()
        if type(message) is not dict:
            yield here, f"message must be a JSON object, got {kind_of(message)}"
        elif "role" not in message:
            yield here, "role is required"
        elif type(role) is not str or role not in _ROLES:
            yield f"{here}.role", f"role must be one of {_QUOTED_ROLES}"
        elif role == "assistant":
            yield from _assistant_problems(message, here, functions, links)
        elif role == "tool":
            yield from _tool_problems(message, here, links)
        else:
            yield from _keys_problem(message, here, ("role", "content"))
            yield from _text_problem(message, here, may_be_empty=False)
    yield from links.close()


def has_tool_calls(message: object) -> bool:
    """Say whether a message has a list of tool calls that is not empty, be they valid or not."""
    if type(message) is not dict:
        return False
    calls = message.get("tool_calls")
    return type(calls) is list and len(calls) > 0


def is_trainable(message: object) -> bool:
    """Say whether a message is an assistant's turn with something to learn from and a weight other than 0."""
    if type(message) is not dict:
        return False
    role, weight = message.get("role"), message.get("weight", 1)
    return (
        type(role) is str
        and role == "assistant"
        and type(weight) is int
        and weight == 1
        and (_has_text(message) or has_tool_calls(message))
    )


def unknown_keys(value: dict[Any, Any], known: Sequence[str]) -> str:
    """Return the other keys of an object, sorted; those that are no strings are reported as such elsewhere."""
    return ", ".join(sorted(key for key in value if type(key) is str and key not in known))


def _assistant_problems(
    message: dict[Any, Any], here: str, functions: Set[str] | None, links: _Links
) -> Iterator[Problem]:
    if unknown := unknown_keys(message, ("role", "content", "tool_calls", "weight")):
        yield here, f"unknown key(s): {unknown}"
    content, weight = message.get("content"), message.get("weight", 1)
    if content is not None and type(content) is not str:
        yield f"{here}.content", f"content must be a string or null, got {kind_of(content)}"
    if type(weight) is not int or weight not in (0, 1):
        yield f"{here}.weight", f"weight must be the integer 0 or 1, got {_shown_weight(weight)}"
    if "tool_calls" in message:
        at = f"{here}.tool_calls"
        links.open(at)
        if has_tool_calls(message):
            for index, call in enumerate(message["tool_calls"]):
                yield from _call_problems(call, f"{at}[{index}]", functions, links)
        else:
            yield at, "tool_calls must be a non-empty list when present; leave it out of a turn without calls"
    if not _has_text(message) and not has_tool_calls(message):
        yield here, "assistant message needs non-empty content or at least one tool call"


def _call_problems(call: object, here: str, functions: Set[str] | None, links: _Links) -> Iterator[Problem]:
    if type(call) is not dict:
        yield here, f"tool call must be a JSON object, got {kind_of(call)}"
        return
    if unknown := unknown_keys(call, ("id", "type", "function")):
        yield here, f"unknown key(s): {unknown}"
    if type(call.get("type")) is not str or call["type"] != "function":
        yield f"{here}.type", 'type must be the literal "function"'
    call_id = call.get("id")
    if type(call_id) is not str or not call_id:
        yield f"{here}.id", "id must be a non-empty string"
    elif not links.declare(call_id):
        yield f"{here}.id", f"duplicate tool call id {call_id!r}; ids are unique within a row"
    if "function" not in call:
        yield here, "tool call requires a function object"
    elif type(call["function"]) is not dict:
        yield f"{here}.function", f"function must be a JSON object, got {kind_of(call['function'])}"
    else:
        yield from _called_function_problems(call["function"], f"{here}.function", functions)


def _called_function_problems(function: dict[Any, Any], here: str, functions: Set[str] | None) -> Iterator[Problem]:
    if unknown := unknown_keys(function, ("name", "arguments")):
        yield here, f"unknown key(s): {unknown}"
    name, arguments = function.get("name"), function.get("arguments")
    if type(name) is not str or not name:
        yield f"{here}.name", "name must be a non-empty string"
    elif functions is not None and name not in functions:
        yield f"{here}.name", f"undefined function {name!r}; define it in $.tools"
    at = f"{here}.arguments"
    if type(arguments) is not str:
        yield at, f"arguments must be a JSON-encoded string, got {kind_of(arguments)}"
        return
    try:
        decoded = parse_json(arguments)
    except StrictJsonError as error:
        yield at, f"arguments must decode as JSON: {error}"
        return
    if type(decoded) is not dict:
        yield at, f"arguments must decode as a JSON object, got {kind_of(decoded)}"
        return
    yield from tree_problems(decoded, at)


def _tool_problems(message: dict[Any, Any], here: str, links: _Links) -> Iterator[Problem]:
    yield from _keys_problem(message, here, ("role", "content", "tool_call_id"))
    yield from _text_problem(message, here, may_be_empty=True)
    call_id = message.get("tool_call_id")
    if type(call_id) is not str or not call_id:
        yield f"{here}.tool_call_id", "tool_call_id must be a non-empty string"
    elif (problem := links.answer(call_id)) is not None:
        yield f"{here}.tool_call_id", problem


def _keys_problem(message: dict[Any, Any], here: str, known: Sequence[str]) -> Iterator[Problem]:
    if unknown := unknown_keys(message, known):
        yield here, f"unknown key(s): {unknown}" + (f"; {_UNKNOWN_WEIGHT}" if "weight" in message else "")


def _text_problem(message: dict[Any, Any], here: str, *, may_be_empty: bool) -> Iterator[Problem]:
    content = message.get("content")
    if type(content) is not str:
        found = f"got {kind_of(content)}" if "content" in message else "and is missing"
        yield f"{here}.content", f"content must be a string, {found}"
    elif not content and not may_be_empty:
        yield f"{here}.content", "content must not be empty"


def _has_text(message: dict[Any, Any]) -> bool:
    content = message.get("content")
    return type(content) is str and content != ""


def _shown_weight(weight: object) -> str:
    # every other number is shown by its kind: it may have thousands of digits
    return repr(weight) if type(weight) is float or weight in range(-9, 10) else kind_of(weight)


class _Links:
    """Tool calls and their results: results follow their assistant message directly, in the order of its calls."""

    def __init__(self) -> None:
        self._declared: set[str] = set()
        self._answered: set[str] = set()
        # an ordered dictionary and not a list: long windows are answered in linear time whatever their order
        self._pending: OrderedDict[str, None] = OrderedDict()
        self._location = ""

    def open(self, location: str) -> None:
        """Begin the window of the assistant message whose tool calls stand there."""
        self._location = location

    def declare(self, call_id: str) -> bool:
        """Expect a result for a call; say whether its id is new in this row."""
        if call_id in self._declared:
            return False
        self._declared.add(call_id)
        self._pending[call_id] = None
        return True

    def answer(self, call_id: str) -> str | None:
        """Take a result; return what is wrong with it."""
        if call_id in self._pending:
            expected = next(iter(self._pending))
            del self._pending[call_id]
            self._answered.add(call_id)
            if call_id == expected:
                return None
            return f"tool_call_id {call_id!r} is out of declaration order; {expected!r} comes first"
        if call_id in self._answered:
            return f"duplicate tool result for tool_call_id {call_id!r}"
        if call_id in self._declared:
            return f"tool_call_id {call_id!r} comes after its tool-call window closed; results follow their calls"
        return f"unknown tool_call_id {call_id!r}; no earlier message makes this call"

    def close(self) -> Iterator[Problem]:
        """End the window before a message that is no result, or at the end of the row."""
        if self._pending:
            ids = ", ".join(map(repr, self._pending))
            self._pending.clear()
            yield (
                self._location,
                f"tool call id(s) {ids} have no tool result (results follow their assistant message directly)",
            )
