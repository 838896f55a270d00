"""Rows of measurements, and the page they are kept on."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "performance.md"


@dataclass(frozen=True)
class Row:
    """One figure beside its reference; `ratio` is ours over the reference. Without a goal, `met` is `None`."""

    what: str
    ours: str
    reference: str
    ratio: float | None
    goal: str
    met: bool | None


def median_ms(seconds: Sequence[float]) -> float:
    """Median in milliseconds."""
    return statistics.median(seconds) * 1000


def at_most(what: str, ms: float, goal_ms: float) -> Row:
    """A row whose reference is a fixed number of milliseconds."""
    return Row(f"{what} (ms)", f"{ms:.1f}", f"{goal_ms:.0f}", ms / goal_ms, f"≤ {goal_ms:.0f} ms", ms <= goal_ms)


def render(rows: Sequence[Row]) -> str:
    """Return rows as a Markdown table."""
    lines = ["| what | ours | reference | ratio | goal |", "|---|---|---|---|---|"]
    for row in rows:
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        verdict = "" if row.met is None else f"{row.goal}: met" if row.met else f"{row.goal}: **missed**"
        lines.append(f"| {row.what} | {row.ours} | {row.reference} | {ratio} | {verdict} |")
    return "\n".join(lines)


def machine() -> str:
    """Say on what was measured."""
    return f"CPython {platform.python_version()}, Linux {platform.release().split('-')[0]}, {os.cpu_count()} cores"


def write(name: str, text: str) -> None:
    """Replace a benchmark's part of the page."""
    start, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    page = PAGE.read_text()
    before, _, rest = page.partition(start)
    _, _, after = rest.partition(end)
    PAGE.write_text(f"{before}{start}\n{text}\n{end}{after}")
