"""Numbers as they are shown on the page."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

UNITS: Final = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k"))


def number(value: float) -> str:
    """Show a number with three digits that count."""
    if not math.isfinite(value):
        return str(value)
    size = abs(value)
    if size >= 1e15:
        return f"{value:.3g}"
    for least, unit in UNITS:
        if size >= least:
            scale = 1e3 if unit == "k" else least
            return f"{_short(value / scale)} {unit}"
    return _short(value)


def duration(seconds: float) -> str:
    """Show a span of time."""
    if not math.isfinite(seconds):
        return "unknown"
    if seconds < 0:
        return f"-{duration(-seconds)}"
    if seconds >= 1e9:
        return f"{number(seconds)} s"
    if seconds >= 3600:
        return f"{seconds // 3600:.0f} h {seconds % 3600 // 60:.0f} min"
    if seconds >= 60:
        return f"{seconds // 60:.0f} min {seconds % 60:.0f} s"
    return f"{_short(seconds)} s" if seconds >= 1 or seconds == 0 else f"{_short(seconds * 1000)} ms"


def counted(count: int, what: str, more: str = "") -> str:
    """Show a number of things: `1 rollout`, `2 rollouts`; `more` is the plural where it has no plain `s`."""
    return f"{count:,} {what if count == 1 else more or what + 's'}"


def finite(values: Iterable[float | None]) -> list[float]:
    """Leave out what cannot be drawn."""
    return [value for value in values if value is not None and math.isfinite(value)]


def mean(values: Sequence[float]) -> float:
    """Return the mean of some values, also where their sum would be beyond all numbers."""
    return math.fsum(value / len(values) for value in values)


def fraction(value: float, low: float, high: float) -> float:
    """Return where a value lies between two ends, from 0 to 1; in the middle where they are the same."""
    # halves, since the distance of the ends may be beyond all numbers
    width = high / 2 - low / 2
    return min(1.0, max(0.0, (value / 2 - low / 2) / width)) if width > 0 else 0.5


def _short(value: float) -> str:
    if abs(value) < 1e5 and value == int(value):
        return str(int(value))
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
