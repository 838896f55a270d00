"""What is found about the requests of one session: findings, one of each kind and place, and few of each kind.

Comes in: findings in order. Goes out: the same, each kind and place once with how often it came up, bounded.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal

Severity = Literal["error", "warning"]
Code = Literal[
    "trainer_owned_model_control",
    "unsupported_model_control",
    "harness_output_cap",
    "rewritten_history",
    "changed_tools",
    "overlapping_generations",
]

MAX_PLACES: Final = 8
"""Findings kept of one kind in one session; a harness that does it everywhere does it in the same way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something in the requests of a session that training could not honour, or would be misled by.

    Args:
        code: Its kind.
        severity: `error` where a rollout cannot be trained on, `warning` where it may come out otherwise.
        field: Place in the request, such as `temperature` or `messages[3].content`; empty when it has none.
        message: What it is and what to do about it, for a person. Holds nothing that acts on a terminal.
        call: Number of the first call that it was found in.
        count: How many calls it was found in.
    """

    code: Code
    severity: Severity
    field: str
    message: str
    call: int
    count: int = 1

    def to_json(self) -> dict[str, str]:
        """Return the item of a collect answer: `code`, `message`, and `field` if there is one."""
        item = {"code": self.code, "field": self.field, "message": self.message}
        if not self.field:
            del item["field"]
        return item


class Findings:
    """The findings of one session, as they are kept."""

    __slots__ = ("_kept", "_omitted", "_places")

    def __init__(self) -> None:
        self._kept: dict[tuple[Code, Severity, str], Finding] = {}
        self._places: dict[tuple[Code, Severity], int] = {}
        self._omitted: dict[tuple[Code, Severity], Finding] = {}

    def add(self, found: Finding) -> None:
        """Keep a finding, or count it."""
        place = (found.code, found.severity, found.field)
        kind = place[:2]
        if place in self._kept:
            self._kept[place] = _again(self._kept[place])
        elif self._places.get(kind, 0) < MAX_PLACES:
            self._places[kind] = self._places.get(kind, 0) + 1
            self._kept[place] = found
        elif kind in self._omitted:
            self._omitted[kind] = _again(self._omitted[kind])
        else:
            message = f"there are more findings of this kind, the first of them in call {found.call}"
            self._omitted[kind] = replace(found, field="", message=message)

    def all(self) -> tuple[Finding, ...]:
        """Return them in the order in which they came up; of each kind with too many, one that says so comes last."""
        return (*self._kept.values(), *self._omitted.values())


def _again(found: Finding) -> Finding:
    return replace(found, count=found.count + 1)
