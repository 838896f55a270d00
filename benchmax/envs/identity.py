"""Identity of an example by content."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["canonical_example_id"]

_LARGEST_SAFE_INTEGER = 2**53 - 1  # beyond it other JSON implementations lose digits


def canonical_example_id(value: Any) -> str:
    """Hash JSON-like content: key order, tuples against lists, and `1.0` against `1` make no difference.

    Args:
        value: `None`, booleans, numbers, strings, and mappings and sequences of these.

    Returns:
        64 lower-case hexadecimal digits.

    Raises:
        ValueError: `value` holds something else, a non-finite float, an integer beyond 2**53 - 1, a key that is not
            a string, or text that is not valid UTF-8.
    """
    text = json.dumps({"v": 1, "value": _normalise(value)}, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def _normalise(value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        try:
            value.encode("utf-8")
        except UnicodeEncodeError as error:
            raise ValueError(f"Example text must be valid UTF-8, but has a lone surrogate: {error}.") from error
        return value
    if isinstance(value, int):
        return _safe_integer(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"Example holds a non-finite number ({value!r}); leave it out or write it as text.")
        return _safe_integer(int(value)) if value.is_integer() else value
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise ValueError(f"Example keys must be strings, got {key!r} ({type(key).__name__}).")
        return {key: _normalise(member) for key, member in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
        return [_normalise(member) for member in value]
    raise ValueError(
        f"A {type(value).__name__} is not JSON-canonicalizable; "
        "use None, booleans, numbers, strings, mappings and sequences."
    )


def _safe_integer(value: int) -> int:
    if abs(value) > _LARGEST_SAFE_INTEGER:
        raise ValueError(
            f"An example holds an integer outside the safe range of plus or minus {_LARGEST_SAFE_INTEGER}; "
            "write it as text."
        )
    return value
