"""Where two JSON documents begin to differ, said so that a person can find it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

SHOWN_CHARS: Final = 160
"""Of each of two values that differ."""

PATH_CHARS: Final = 400
"""Of the place at which they do."""

ABSENT: Final = object()
"""Stands for what is not there."""

_NAME: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)

_Place = tuple["_Place | None", str | int]
"""A member's name or an item's number, and the place that it is in."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The first place at which two documents differ.

    Args:
        path: The place, such as `$.messages[2].content`.
        first: The value there in the first document as JSON, bounded; `nothing` where it has none.
        second: The same of the second.
    """

    path: str
    first: str
    second: str


def first_difference(first: object, second: object, *, path: str = "$") -> Difference | None:
    """Compare two decoded JSON documents; `None` when they are equal.

    Numbers are equal by value, `true` is no number, the order of an object's members has no meaning.

    Args:
        first: One document.
        second: The other one.
        path: What the place of the whole is called.
    """
    # no recursion: how deep a document is, is for its author to say
    waiting: list[tuple[_Place, object, object]] = [((None, path), first, second)]
    while waiting:
        here, one, other = waiting.pop()
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            names = [*one, *(name for name in other if name not in one)]
            waiting += [((here, name), one.get(name, ABSENT), other.get(name, ABSENT)) for name in reversed(names)]
        elif isinstance(one, list) and isinstance(other, list):
            count = max(len(one), len(other))
            waiting += [((here, i), _item(one, i), _item(other, i)) for i in reversed(range(count))]
        elif not _equal(one, other):
            return Difference(_spelled(here), *_shown(one, other))
    return None


def _spelled(place: _Place) -> str:
    """Spell a place out; of a long one both ends."""
    parts: list[str] = []
    step: _Place | None = place
    while step is not None:
        step, name = step
        if step is None:
            parts.append(str(name))
        elif isinstance(name, str):
            name = name if len(name) <= SHOWN_CHARS else f"{name[:SHOWN_CHARS]}…"
            parts.append(f".{name}" if _NAME.fullmatch(name) else f"[{json.dumps(name, ensure_ascii=False)}]")
        else:
            parts.append(f"[{name}]")
    text = "".join(reversed(parts))
    return text if len(text) <= PATH_CHARS else f"{text[: PATH_CHARS // 2]} … {text[-PATH_CHARS // 2 :]}"


def _item(items: list[Any], index: int) -> object:
    return items[index] if index < len(items) else ABSENT


def _equal(one: object, other: object) -> bool:
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        # a reward may be no number in both
        return one == other or (one != one and other != other)
    return type(one) is type(other) and one == other


def _shown(one: object, other: object) -> tuple[str, str]:
    """Show two values; of long texts the part in which they begin to differ."""
    if isinstance(one, str) and isinstance(other, str):
        same = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
        start = max(0, same - SHOWN_CHARS // 3)
        return _excerpt(one, start), _excerpt(other, start)
    return _as_json(one), _as_json(other)


def _excerpt(text: str, start: int) -> str:
    piece = text[start : start + SHOWN_CHARS]
    before = f"…({start} characters) " if start else ""
    rest = len(text) - start - len(piece)
    return f"{before}{json.dumps(piece, ensure_ascii=False)}{f' …({rest} more)' if rest else ''}"


def _as_json(value: object) -> str:
    if value is ABSENT:
        return "nothing"
    if isinstance(value, Mapping):
        return f"an object of {len(value)} members"
    if isinstance(value, list):
        return f"an array of {len(value)} items"
    return _excerpt(value, 0) if isinstance(value, str) else json.dumps(value)
