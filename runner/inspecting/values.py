"""What a pickle's instructions leave on its stack, as inert descriptions: nothing is imported, called or made."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from runner.inspecting.bounds import SHOWN_CHARS, SHOWN_DEPTH, SHOWN_MEMBERS
from runner.text import one_line


@dataclass(slots=True, eq=False)
class Global:
    """Something imported: `name` of `module`, or the module itself where `name` is empty; `path` is both, dotted."""

    module: str
    name: str
    path: str = field(init=False)

    def __post_init__(self) -> None:
        self.path = f"{self.module}.{self.name}" if self.name else self.module


@dataclass(slots=True, eq=False)
class Group:
    """A tuple, list or set.

    Args:
        kind: Which of them.
        members: The first members.
        dropped: How many more there are.
        late: Whether it came after all that is kept, so that its members are forgotten with it.
    """

    kind: Literal["tuple", "list", "set", "frozenset"]
    members: list[Value]
    dropped: int = 0
    late: bool = False


@dataclass(slots=True, eq=False)
class Pairs:
    """A dict: its first keys and values, and how many more there are."""

    members: list[tuple[Value, Value]]
    dropped: int = 0


@dataclass(slots=True, eq=False)
class Call:
    """The result of a call.

    Args:
        callee: What is called.
        arguments: Its arguments, mostly a tuple.
        position: Where in the pickle.
        state: What the result is filled with afterwards; `None` when it is not.
    """

    callee: Value
    arguments: Value
    position: int
    state: Value = None


@dataclass(slots=True, eq=False)
class Blob:
    """A text, bytes or number that is too large to keep: its size in bytes, and how it begins."""

    kind: Literal["text", "bytes", "number"]
    size: int
    head: str = ""


class Unknown:
    """Something that was not kept, or that only loading could tell."""


UNKNOWN: Final = Unknown()

Value: TypeAlias = "bool | int | float | str | bytes | Global | Group | Pairs | Call | Blob | Unknown | None"


def members(value: Value) -> list[Value]:
    """Return the known members of a tuple, list or set; none of anything else."""
    return value.members if isinstance(value, Group) else []


def pairs(value: Value) -> dict[str, Value]:
    """Return the known members of a dict whose keys are texts."""
    found = value.members if isinstance(value, Pairs) else []
    return {key: item for key, item in found if isinstance(key, str)}


def made_by(value: Value) -> str:
    """Return the dotted name of what a call's result was made by; empty for anything else."""
    return value.callee.path if isinstance(value, Call) and isinstance(value.callee, Global) else ""


def shown(value: Value, limit: int = SHOWN_CHARS) -> str:
    """Describe a value in one line that is safe to show."""
    return one_line(_shown(value, SHOWN_DEPTH), limit)


def _shown(value: Value, depth: int) -> str:
    match value:
        case bool() | int() | float() | None:
            return repr(value)
        case str() | bytes():
            text = repr(value[: SHOWN_CHARS + 1])
            return text if len(value) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…"
        case Global():
            return value.path.removeprefix("builtins.")
        case Blob():
            head = f" {value.head!r}…" if value.head else ""
            return f"<{value.kind} of {value.size:,} bytes{head}>"
        case Unknown():
            return "<unknown>"
        case Group():
            return _group(value, depth)
        case Pairs():
            if not depth:
                return "{…}" if value.members or value.dropped else "{}"
            inner = [
                f"{_shown(key, depth - 1)}: {_shown(item, depth - 1)}" for key, item in value.members[:SHOWN_MEMBERS]
            ]
            return "{" + ", ".join([*inner, *_more(len(value.members) + value.dropped)]) + "}"
        case Call():
            return f"{_shown(value.callee, depth - 1)}(…)" if depth else "…(…)"


def _group(value: Group, depth: int) -> str:
    size = len(value.members) + value.dropped
    inner = [_shown(item, depth - 1) for item in value.members[:SHOWN_MEMBERS]] if depth else []
    text = ", ".join([*inner, *_more(size)]) if depth else "…" * bool(size)
    match value.kind:
        case "tuple":
            return f"({text},)" if size == 1 and depth else f"({text})"
        case "list":
            return f"[{text}]"
        case "set":
            return f"{{{text}}}" if size else "set()"
        case "frozenset":
            return f"frozenset({{{text}}})" if size else "frozenset()"


def _more(size: int) -> list[str]:
    return [f"… {size - SHOWN_MEMBERS:,} more"] if size > SHOWN_MEMBERS else []
