"""JSON of clients and servers, read quickly, and as Python's own reader has it where the quick one is too strict.

A few bytes of it can stand for many objects, so what has too many values is refused before it is decoded.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import msgspec

from runner.limits import KIB, MAX_JSON_VALUES

_IRRELEVANT: Final = bytes({*range(256)} - {*b'",:[{'})
_TEXT: Final = re.compile(rb'"[^"]*"')
_FEW: Final = 100_000
_WINDOW: Final = 256 * KIB


class Outline(msgspec.Struct):
    """What there is to know of an answer that is mostly data; the rest is checked to be JSON, and not kept."""

    usage: Any = None
    error: Any = None


_OUTLINE: Final = msgspec.json.Decoder(Outline)


def count_values(text: bytes) -> int:
    """Return about as many values as JSON has; of more than `MAX_JSON_VALUES`, how many more is not counted."""
    found = _marks(text)
    if found <= _FEW:
        # even if some stand in texts
        return found
    found = at = 0
    inside = False
    while at < len(text) and found <= MAX_JSON_VALUES:
        window = text[at : at + _WINDOW]
        if (len(window) - len(window.rstrip(b"\\"))) % 2:
            # what is escaped belongs to it
            window = text[at : at + len(window) + 1]
        at += len(window)
        # nothing is left but marks, and quotes that begin and end texts; most texts are empty then
        bare = window.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _IRRELEVANT)
        bare = _TEXT.sub(b"", (b'"' + bare if inside else bare).replace(b'""', b""))
        bare, quote, _ = bare.partition(b'"')
        inside = bool(quote)
        found += _marks(bare)
    return found


def _marks(text: bytes) -> int:
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def read_json(text: bytes) -> object:
    """Decode JSON.

    Raises:
        ValueError: it is none, nested too deeply, or has more than `MAX_JSON_VALUES` values.
    """
    if count_values(text) > MAX_JSON_VALUES:
        raise ValueError(f"it has more than {MAX_JSON_VALUES} values")
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        # it refuses NaN and halves of characters, which Python's own clients and servers may write
        try:
            return json.loads(text)
        except RecursionError:
            raise ValueError("it is nested too deeply") from None


def read_outline(text: bytes) -> dict[str, object]:
    """Decode of a JSON object what an outline has, whatever else there is.

    Raises:
        ValueError: it is none, or nested too deeply.
    """
    try:
        found = _OUTLINE.decode(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        document = read_json(text)
        if not isinstance(document, dict):
            raise ValueError("it is no object") from None
        return document
    return {"usage": found.usage, "error": found.error}


def write_json(value: object, *, like: bytes) -> bytes:
    """Encode what was decoded, so that whoever reads it reads what was judged: each member once.

    Args:
        value: What to write.
        like: The text that it, or most of it, was read from.

    Raises:
        ValueError: it is nested too deeply.
    """
    # both are null to the quick writer
    if b"NaN" not in like and b"Infinity" not in like:
        try:
            return msgspec.json.encode(value)
        except (msgspec.MsgspecError, RecursionError, UnicodeEncodeError, OverflowError):
            # what only Python's own reader takes
            pass
    try:
        return json.dumps(value).encode("ascii")
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
