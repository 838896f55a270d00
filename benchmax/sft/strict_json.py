"""JSON without what parsers disagree about: repeated keys, NaN, lone surrogates, nesting without end.

`parse_json` reads a text, `tree_problems` checks a value wherever it came from, and `canonical_json` writes it in the
one form that two equal values share.
"""

from __future__ import annotations

import json
import math
from typing import Any, Final, TypeAlias

__all__ = ["MAX_JSON_DEPTH", "Problem", "StrictJsonError", "canonical_json", "kind_of", "parse_json", "tree_problems"]

MAX_JSON_DEPTH: Final = 64
"""Objects and arrays inside each other, the outermost being the first."""

_TOO_DEEP: Final = f"nesting exceeds {MAX_JSON_DEPTH} levels"

_SURELY_WRITABLE_BITS: Final = 2000
"""Python writes integers up to this size whatever limit it is set to, which is never below 640 digits."""

_KINDS: Final[dict[type, str]] = {
    dict: "an object",
    list: "a list",
    str: "a string",
    int: "a number",
    float: "a number",
    bool: "a boolean",
    type(None): "null",
}

Problem: TypeAlias = tuple[str, str]
"""Where something is wrong, and what."""


class StrictJsonError(ValueError):
    """Raised when a text is not strict JSON; `str()` says why."""


def parse_json(text: str) -> Any:
    """Return the value of a JSON text.

    Raises:
        StrictJsonError: an object repeats a key, a number is not finite, or the text is not JSON at all.
    """
    repeated: list[str] = []
    constants: list[str] = []

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in pairs:
            if key in found:
                repeated.append(key)
            found[key] = value
        return found

    value = failure = None
    try:
        value = json.loads(text, object_pairs_hook=unique, parse_constant=constants.append)
    except RecursionError:
        failure = _TOO_DEEP
    except ValueError as error:
        # the parser's own errors, and Python's about integers of thousands of digits
        failure = f"invalid JSON: {error}"
    if repeated:
        failure = f"duplicate object key {repeated[0]!r}"
    elif constants:
        failure = f"non-finite number literal {constants[0]!r}"
    if failure is not None:
        raise StrictJsonError(failure)
    return value


def canonical_json(value: object) -> bytes:
    """Write a value without problems: keys sorted, no spaces, UTF-8 with nothing escaped that need not be."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))
    return text.encode("utf-8")


def kind_of(value: object) -> str:
    """Return what a value is, in words of JSON where it has one."""
    kind = type(value)
    return _KINDS.get(kind, kind.__name__)


def tree_problems(value: object, location: str, depth: int = 1) -> list[Problem]:
    """Return what keeps a value from being written as JSON and read back the same, in document order.

    Args:
        value: Anything; only the exact types that a JSON parser makes pass.
        location: Where it stands.
        depth: Its own level of nesting.
    """
    walk = _Walk()
    walk.visit(value, location, depth)
    return walk.problems


class _Walk:
    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self._entered: set[int] = set()
        self._inside_themselves: set[int] = set()
        self._reported: set[int] = set()

    def visit(self, value: object, location: str, depth: int) -> None:
        kind = type(value)
        if kind is dict or kind is list:
            self._visit_container(value, location, depth)
        elif isinstance(value, str) and kind is str:
            if not _is_unicode(value):
                self.problems.append((location, "string contains a lone surrogate, which UTF-8 cannot hold"))
        elif isinstance(value, float) and kind is float:
            if not math.isfinite(value):
                self.problems.append((location, f"number must be finite, got {value!r}"))
        elif isinstance(value, int) and kind is int:
            if (reason := _unwritable(value)) is not None:
                self.problems.append((location, f"integer cannot be written: {reason}"))
        elif kind is not bool and value is not None:
            self.problems.append(
                (location, f"unsupported type {kind.__name__}; use dict, list, str, int, float, bool or None")
            )

    def _visit_container(self, container: Any, location: str, depth: int) -> None:
        if depth > MAX_JSON_DEPTH:
            self.problems.append((location, _TOO_DEEP))
            self._reported |= self._inside_themselves
            return
        inside_itself = id(container) in self._entered
        if inside_itself:
            if id(container) in self._reported:
                # one way to its end is enough: with two, their number would double at every level
                return
            self._inside_themselves.add(id(container))
        self._entered.add(id(container))
        if isinstance(container, dict):
            for key, value in container.items():
                if type(key) is not str:
                    self.problems.append((location, f"object key {_shown(key)} must be a string"))
                elif not _is_unicode(key):
                    self.problems.append((location, f"object key {key!r} contains a lone surrogate"))
                else:
                    self.visit(value, f"{location}.{key}", depth + 1)
        else:
            for index, value in enumerate(container):
                self.visit(value, f"{location}[{index}]", depth + 1)
        if not inside_itself:
            self._entered.remove(id(container))


def _shown(key: object) -> str:
    try:
        return repr(key)
    except Exception:  # noqa: BLE001 - a key may be anybody's object, or an integer too long to be written
        return f"of type {type(key).__name__}"


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _unwritable(number: int) -> str | None:
    if number.bit_length() > _SURELY_WRITABLE_BITS:
        try:
            repr(number)
        except ValueError as error:
            return str(error)
    return None
