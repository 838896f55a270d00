"""Writes the TOML of a lock: tables of plain values, always in the same form, so that equal locks are equal bytes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from typing import Any, Final

_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")


def write_lock_text(data: Mapping[str, Any], *, comment: str = "") -> str:
    """Write a lock.

    Args:
        data: As `tomllib` reads it; the keys `packages` and `tool` come last.
        comment: First line.
    """
    lines = [f"# {comment}"] if comment else []
    lines += [_pair(key, value) for key, value in data.items() if key not in ("packages", "tool")]
    for package in data.get("packages", ()):
        lines += ["", "[[packages]]", *(_pair(key, value) for key, value in package.items())]
    for name, table in data.get("tool", {}).items():
        lines += ["", f"[tool.{_key(name)}]", *(_pair(key, value) for key, value in table.items())]
    return "\n".join(lines) + "\n"


def quote(text: str) -> str:
    """Return a text as a TOML basic string."""
    # a JSON string is one, except that TOML forbids the bare character 0x7F
    return re.sub("\x7f", r"\\u007F", json.dumps(text, ensure_ascii=False))


def _pair(key: str, value: object) -> str:
    return f"{_key(key)} = {_value(value, outermost=True)}"


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else quote(key)


def _value(value: object, *, outermost: bool = False) -> str:
    match value:
        case str():
            return quote(value)
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case date() | time():
            return value.isoformat()
        case Mapping():
            pairs = ", ".join(f"{_key(key)} = {_value(inner)}" for key, inner in value.items())
            return f"{{ {pairs} }}" if pairs else "{}"
        case Sequence():
            items = [_value(inner) for inner in value]
            if outermost and len(items) > 1:
                # one a line, so that differences between two locks can be read
                return "[\n" + "".join(f"    {item},\n" for item in items) + "]"
            return f"[{', '.join(items)}]"
        case _:
            raise TypeError(f"a lock cannot hold {type(value).__name__}.")
