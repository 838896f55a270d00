"""The rollouts as they lie in the page: a table of what lists need, and packed chunks of everything else.

The table is JSON by columns, read when the page opens. A chunk is a JSON array of outcomes, exactly as the report's own
JSON has them, compressed, and unpacked only when one of its rollouts is looked at or searched.
"""

from __future__ import annotations

import base64
import gzip
import math
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from runner.report.page.markup import Markup, element
from runner.report.value import Report

CHUNK_BYTES: Final = 128 * 1024
"""JSON that a chunk holds before the next begins: unpacked in a moment, large enough to compress well."""

MAX_COLUMNS: Final = 24
"""Reward components in the table; all of them are in the chunks."""

SHORT: Final = 200
"""Characters of a text in the table; the whole is in the chunk."""

FORMAT: Final = 1
"""Version of the table, for whatever reads a page's data."""


def table(report: Report) -> Markup:
    """Return the table as a block that a browser leaves alone."""
    data = safe_json(msgspec.json.encode(_columns(report)))
    return element("script", Markup(data), type="application/json", id="table")


def chunks(report: Report) -> Iterator[Markup]:
    """Return everything else there is on rollouts, as blocks that a browser leaves alone."""
    for number, part in enumerate(_parts(report)):
        packed = base64.b64encode(gzip.compress(b"[" + b",".join(part) + b"]", 6, mtime=0)).decode()
        yield element("script", Markup(packed), type="application/gzip", id=f"chunk-{number}", data_count=len(part))


def places(report: Report) -> dict[str, int]:
    """Return the place of each rollout in the table."""
    return {outcome.rollout_id: place for place, outcome in enumerate(report.outcomes)}


def safe_json(data: bytes) -> str:
    """Return JSON that means the same and can stand in a script element: nothing in it can end that."""
    text = data.decode()
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _parts(report: Report) -> Iterator[list[bytes]]:
    part: list[bytes] = []
    size = 0
    for outcome in report.outcomes:
        data = msgspec.json.encode(outcome)
        if part and size + len(data) > CHUNK_BYTES:
            yield part
            part, size = [], 0
        part.append(data)
        size += len(data)
    if part:
        yield part


def _columns(report: Report) -> dict[str, Any]:
    outcomes = report.outcomes
    components = [*report.components()][:MAX_COLUMNS]
    reasons = [reason for reason, _ in report.reasons().most_common()]
    numbers = {reason: place for place, reason in enumerate(reasons)}
    return {
        "format": FORMAT,
        "components": [_short(name) for name in components],
        "reasons": [_short(reason) for reason in reasons],
        "groups": {
            "position": [group.position for group in report.groups],
            "example": [_short(group.example_id) for group in report.groups],
            "rollouts": [group.rollouts for group in report.groups],
            "error": [_short(group.error or "") for group in report.groups],
        },
        "rollouts": {
            "id": [_short(one.rollout_id) for one in outcomes],
            "group": [place for place, group in enumerate(report.groups) for _ in group.outcomes],
            "ok": [int(one.ok) for one in outcomes],
            "reason": [numbers[one.termination_reason] for one in outcomes],
            "seconds": [_rounded(one.seconds) for one in outcomes],
            "tokens": [None if one.model_use is None else one.model_use.total_tokens for one in outcomes],
            "findings": [len(one.findings) for one in outcomes],
            "cause": [_short(one.cause) for one in outcomes],
            "rewards": [[_rounded(one.rewards.get(name)) for one in outcomes] for name in components],
        },
    }


def _short(text: str) -> str:
    return text if len(text) <= SHORT else text[: SHORT - 1] + "…"


def _rounded(value: float | None) -> float | None:
    """A number that lists show with three digits; `None` is what JSON has for those that are not finite."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.6g}")
