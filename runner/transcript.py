"""A rollout's messages as a JSON array: what may cross, judged alike by the worker and by the caller.

Comes in: JSON text of a peer. Goes out: plain lists, dicts, texts and numbers. Refuses: more values than the limit, and
deep nesting, both told from the text before anything is built of it: `[[],[],…]` grows thirtyfold when decoded, and
recursion over deep nesting ends the process on a small stack.

This file is shipped into the worker, so it needs nothing but the standard library and msgspec.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from .limits import MAX_TRANSCRIPT_DEPTH

MARKS: Final = (b"[", b"{", b",", b":")
"""Each array, object, item and member has one, but for an item that is the first of its array."""

_WINDOW_BYTES: Final = 16 * 1024
_BRACKETS: Final = bytes.maketrans(b"{}", b"[]")
_REST: Final = bytes(set(range(256)) - set(b"[]{}"))
_decoder: msgspec.json.Decoder[list[Any]] = msgspec.json.Decoder(list[Any])


def values(data: bytes, *, exact: bool) -> int:
    """Count the values in JSON text; unless `exact`, punctuation inside of texts counts too, which is much quicker."""
    pieces = _outside_strings(data) if exact else (data,)
    return sum(piece.count(mark) for piece in pieces for mark in MARKS)


def is_flat(data: bytes, limit: int = MAX_TRANSCRIPT_DEPTH) -> bool:
    """Whether JSON text has at most so many arrays and objects inside each other."""
    if data.count(b"[") + data.count(b"{") <= limit:
        return True
    left = b"".join(piece.translate(_BRACKETS, _REST) for piece in _outside_strings(data))
    for _ in range(limit):
        if not left:
            break
        # the innermost ones, of all branches at once
        left = left.replace(b"[]", b"")
    return not left


def _outside_strings(data: bytes) -> Iterator[bytes]:
    """Give what stands outside of the texts, a little at a time: very many short texts take fifty times their size."""
    data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    inside = 0
    for start in range(0, len(data), _WINDOW_BYTES):
        pieces = data[start : start + _WINDOW_BYTES].split(b'"')
        yield b"".join(pieces[inside::2])
        inside ^= (len(pieces) - 1) & 1


def decoded(data: bytes) -> list[Any]:
    """Decode a transcript.

    Raises:
        ValueError: it is not a JSON array, or nested too deeply.
    """
    if not is_flat(data):
        raise ValueError(f"more than {MAX_TRANSCRIPT_DEPTH} arrays and objects inside each other")
    try:
        return _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise ValueError(f"not a JSON array: {error}") from error
