"""What a person has to know of a run before anything else, the worst first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

from runner.report.page.figures import counted
from runner.report.value import GroupFacts, OutcomeFacts, Report
from runner.text import one_line

MAX_DETAILS: Final = 50
"""Lines below one finding; the JSON has them all."""

MAX_CHARACTERS: Final = 1000
"""Of such a line; what is longer is with its rollout, or in the JSON."""

MAX_REASONS: Final = 20
"""Termination reasons that are findings of their own; an environment has a handful."""

MAX_TRACEBACKS: Final = 10
"""Tracebacks below one finding."""

Severity = Literal["error", "warning", "note"]
SEVERITIES: Final[tuple[Severity, ...]] = ("error", "warning", "note")


class Notice(NamedTuple):
    """Something that was found.

    Args:
        severity: `error` is what keeps the run from being good.
        text: One sentence.
        details: Lines below it.
        rollout_id: A rollout to look at.
        tracebacks: Where it came from, by title.
        code: What findings of its kind are called, if they are.
        step: What to do next.
    """

    severity: Severity
    text: str
    details: tuple[str, ...] = ()
    rollout_id: str | None = None
    tracebacks: tuple[tuple[str, str], ...] = ()
    code: str = ""
    step: str = ""


def notices(report: Report) -> list[Notice]:
    """Return what was found, errors first."""
    return sorted(_notices(report), key=lambda notice: SEVERITIES.index(notice.severity))


def _notices(report: Report) -> Iterator[Notice]:
    if report.interrupted:
        yield Notice("error", "The run was interrupted; this is what was known by then.")
    yield from _rollouts(report)
    if report.close_error:
        yield Notice("error", "The environment could not be closed.", _some([report.close_error]))
    yield from _replay(report)
    for kind in report.findings():
        yield Notice(
            "error" if kind.severity == "error" else "warning",
            f"{kind.code} in {counted(kind.rollouts, 'rollout')}: {kind.example.message}",
            (f"first in {kind.rollout_id}, call {kind.example.call} {kind.example.field}".rstrip(),),
            kind.rollout_id,
        )
    yield from _surroundings(report)


def _rollouts(report: Report) -> Iterator[Notice]:
    raised = [group for group in report.groups if group.error is not None]
    if raised:
        lines = [_group_error(group) for group in raised]
        tracebacks = [(f"Traceback of group {group.position}", group.traceback) for group in raised if group.traceback]
        yield Notice(
            "error",
            f"{counted(len(raised), 'group')} raised instead of giving outcomes.",
            _some(lines),
            tracebacks=tuple(tracebacks[:MAX_TRACEBACKS]),
        )
    elsewhere = sum(max(0, group.rollouts - len(group.outcomes)) for group in report.groups if group.error is None)
    if elsewhere:
        yield Notice("error", f"{counted(elsewhere, 'rollout has', 'rollouts have')} no outcome.")
    failed: dict[str, list[OutcomeFacts]] = {}
    for outcome in report.outcomes:
        if not outcome.ok:
            failed.setdefault(outcome.termination_reason, []).append(outcome)
    reasons = sorted(failed, key=lambda reason: -len(failed[reason]))
    for reason in reasons[:MAX_REASONS]:
        these = failed[reason]
        causes = Counter(outcome.cause for outcome in these if outcome.cause)
        lines = [f"{cause} ({times} times)" if times > 1 else cause for cause, times in causes.most_common()]
        runner = " (the runner ended them)" if all(outcome.origin == "runner" for outcome in these) else ""
        text = f"{counted(len(these), 'rollout')} did not end well: {one_line(reason)}{runner}."
        yield Notice("error", text, _some(lines, 5), these[0].rollout_id)
    if len(reasons) > MAX_REASONS:
        others = sum(len(failed[reason]) for reason in reasons[MAX_REASONS:])
        yield Notice("error", f"{counted(others, 'more rollout')} did not end well, for reasons that are rarer.")


def _group_error(group: GroupFacts) -> str:
    code = f" [{group.error_code}]" if group.error_code else ""
    return f"group {group.position} (example {group.example_id}): {group.error}{code}"


def _replay(report: Report) -> Iterator[Notice]:
    replay = report.replay
    if replay is None:
        return
    found = len(replay.findings) + replay.omitted
    text = f"Replay of {replay.path}: {replay.equal:,} of {replay.outcomes:,} outcomes are as recorded."
    if replay.unused_calls:
        text += f" Recorded model calls that nothing asked for: {replay.unused_calls:,}."
    lines = [
        f"{one.rollout_id}: {one.message} [{one.code}]"
        + (f" At {one.path}: {one.recorded} ⇒ {one.now}" if one.path else "")
        for one in replay.findings
    ]
    yield Notice("error" if found else "note", text, _some(lines))


def _surroundings(report: Report) -> Iterator[Notice]:
    if report.worker_deaths:
        dead = counted(len(report.worker_deaths), "worker")
        yield Notice("warning", f"{dead} ended before the run was over.", _some(report.worker_deaths))
    unreachable = [place for place in report.sandbox.endpoints if place.failed]
    for place in unreachable:
        yield Notice(
            "warning",
            f"{place.endpoint} could not be connected to, {counted(place.failed, 'time')}.",
            _some([place.reason]),
        )
    if report.headers.refused:
        count = report.headers.not_answered
        reasons = Counter(refusal.reason for refusal in report.headers.refused)
        yield Notice("warning", f"{counted(count, 'header request')} got no headers.", _some([*reasons]))
    for warning in report.venv.warnings:
        yield Notice("warning", warning)
    dropped = sum(outcome.dropped_logs for outcome in report.outcomes)
    if dropped:
        yield Notice("note", f"{counted(dropped, 'log line')} beyond the limits are not in the report.")
    if report.sandbox.not_limited:
        yield Notice("note", "Not everything could be limited.", _some(report.sandbox.not_limited))


def _some(lines: list[str], most: int = MAX_DETAILS) -> tuple[str, ...]:
    shown = tuple(line if len(line) <= MAX_CHARACTERS else f"{line[: MAX_CHARACTERS - 1]}…" for line in lines[:most])
    return shown if len(lines) <= most else (*shown, f"… {len(lines) - most:,} more")
