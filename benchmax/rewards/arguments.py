"""Checks of arguments that several modules of this package make. Private."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeGuard

__all__ = ["is_blank", "is_finite", "is_integer_from", "is_number", "require_same_length", "require_text"]


def is_blank(value: object) -> bool:
    """Say whether a value is anything but a text with a visible character."""
    return not isinstance(value, str) or not value.strip()


def is_number(value: object) -> TypeGuard[float]:
    """Say whether a value is an integer or a float; a bool is neither."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_finite(number: float) -> bool:
    """Say whether a number is one that a float can hold; an integer of hundreds of digits is none."""
    try:
        return math.isfinite(number)
    except OverflowError:
        return False


def is_integer_from(value: object, least: int) -> bool:
    """Say whether a value is an integer of at least `least`; a bool is none."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def require_text(owner: str, **texts: object) -> None:
    """Refuse blank texts.

    Raises:
        ValueError: one is not a string or is blank.
    """
    for name, text in texts.items():
        if is_blank(text):
            raise ValueError(f"{owner} needs a non-blank string as {name}, got {text!r}.")


def require_same_length(owner: str, **sequences: Sequence[object]) -> None:
    """Refuse sequences of which one is longer than another.

    Raises:
        ValueError: their lengths differ.
    """
    lengths = {name: len(sequence) for name, sequence in sequences.items()}
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        raise ValueError(f"{owner} needs {' and '.join(lengths)} of the same length; {found}.")
