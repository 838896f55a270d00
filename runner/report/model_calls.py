"""A report's part on model calls: how many, their tokens and times, and what of them training could not honour."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from runner.gateway.exchange import CallTrace
from runner.record import RolloutRecord

TIMED_CALLS: Final = 100
"""Calls of one rollout whose times are in its report: as many as a long conversation has."""


class FindingFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Something in a rollout's model requests that training could not honour.

    `field` is the place in the request, `call` the first call that it was found in, `count` in how many it was.
    """

    code: str
    severity: str
    message: str
    field: str = ""
    call: int = 0
    count: int = 1


class ModelUseFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A rollout's calls of its own model through the gateway, and their tokens; `estimated` where a server told none.

    `failed` of them had an error instead of an answer. `seconds` is how long the first took that were answered.
    """

    calls: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0
    estimated: bool = False
    seconds: list[float] = []


class KindOfFinding(NamedTuple):
    """One kind of finding: in how many rollouts it came up, and the first of them with what it had."""

    severity: str
    code: str
    rollouts: int
    rollout_id: str
    example: FindingFacts


def total(uses: Iterable[ModelUseFacts | None]) -> ModelUseFacts | None:
    """Return the calls of several rollouts together; `None` where no gateway saw any."""
    seen = [use for use in uses if use is not None]
    if not seen:
        return None
    return ModelUseFacts(
        calls=sum(use.calls for use in seen),
        failed=sum(use.failed for use in seen),
        prompt_tokens=sum(use.prompt_tokens for use in seen),
        completion_tokens=sum(use.completion_tokens for use in seen),
        total_tokens=sum(use.total_tokens for use in seen),
        estimated=any(use.estimated for use in seen),
        seconds=[seconds for use in seen for seconds in use.seconds],
    )


def kinds(found: Iterable[tuple[str, Iterable[FindingFacts]]]) -> list[KindOfFinding]:
    """Sort findings by kind, errors first.

    Args:
        found: Rollouts by id, and what was found in each.
    """
    kinds: dict[tuple[str, str], KindOfFinding] = {}
    for rollout_id, findings in found:
        first: dict[tuple[str, str], FindingFacts] = {}
        for finding in findings:
            first.setdefault((finding.severity, finding.code), finding)
        for kind, finding in first.items():
            known = kinds.get(kind, KindOfFinding(*kind, 0, rollout_id, finding))
            kinds[kind] = known._replace(rollouts=known.rollouts + 1)
    return [kinds[kind] for kind in sorted(kinds)]


def model_use(record: RolloutRecord) -> ModelUseFacts | None:
    """Return what a record says of a rollout's model calls; `None` without the gateway."""
    usage = record.usage
    if usage is None:
        return None
    asked = [trace for trace in record.calls if trace.call.method == "POST"]
    return ModelUseFacts(
        calls=record.num_calls,
        failed=sum(not _answered(trace) for trace in asked),
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        total_tokens=usage.total_tokens,
        estimated=usage.estimated,
        seconds=[round(trace.seconds, 3) for trace in asked if _answered(trace)][:TIMED_CALLS],
    )


def finding_facts(record: RolloutRecord) -> list[FindingFacts]:
    """Return a record's findings as its report has them."""
    return [
        FindingFacts(
            code=found.code,
            severity=found.severity,
            message=found.message,
            field=found.field,
            call=found.call,
            count=found.count,
        )
        for found in record.diagnostics
    ]


def _answered(trace: CallTrace) -> bool:
    return 200 <= trace.status < 300 and trace.error is None
