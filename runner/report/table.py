"""The report on a terminal: a row per rollout (per group when there are many), then what it comes to."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from runner.report.model_calls import ModelUseFacts
from runner.report.value import GroupFacts, OutcomeFacts, Report
from runner.text import one_line

MAX_ROWS: Final = 60
"""Rollouts shown one by one; more than two screens of rows are not read."""

MAX_COMPONENTS: Final = 8
"""Reward components that get a column; more do not fit beside each other."""


MAX_LINES: Final = 5
"""Lines of one kind below the table; what goes wrong everywhere mostly goes wrong in the same way."""


def show(report: Report, console: Console) -> None:
    """Print the outcome table and the summary."""
    if report.outcomes:
        names = _fitting(report.components(), console.width)
        console.print(_outcomes(report, names) if report.expected <= MAX_ROWS else _groups(report, names))
    for line in summary(report):
        console.print(line, soft_wrap=True)


def summary(report: Report) -> list[Text]:
    """Return what the run comes to, in a few lines."""
    lines = [
        Text.assemble(
            (f"{report.ok} ok", "green" if report.ok else ""),
            " · ",
            (f"{report.failed} failed", "red" if report.failed else ""),
            " · ",
            (f"{report.missing} missing", "red" if report.missing else ""),
            f" of {report.expected} rollouts"
            f" in {report.timings.get('rollouts_s', 0.0):.1f} s (total {report.timings.get('total_s', 0.0):.1f} s)",
        )
    ]
    reasons = report.reasons()
    if reasons:
        lines.append(Text("ended: " + ", ".join(f"{one_line(name, 40)} {n}" for name, n in reasons.most_common())))
    means = report.components()
    if means:
        parts = [f"{one_line(name, 40)} {_mean(mean)} (n={n})" for name, (mean, n) in [*means.items()][:MAX_COMPONENTS]]
        if len(means) > MAX_COMPONENTS:
            parts.append(f"… {len(means) - MAX_COMPONENTS} more components, all in the JSON")
        shown = ", ".join(parts)
        lines.append(Text(f"mean rewards: {shown}"))
    use = report.model_use()
    if use is not None:
        lines.append(Text(f"model calls: {_use(use)}"))
    for kind in report.findings():
        what = f"{kind.severity}: {kind.code} in {kind.rollouts} rollout{'s' if kind.rollouts > 1 else ''}"
        example = f"{what}; {kind.rollout_id}, call {kind.example.call}"
        style = "red" if kind.severity == "error" else "yellow"
        lines.append(Text(f"{one_line(example, 200)}: {one_line(kind.example.message, 300)}", style=style))
    raised = [_raised(group.position, group.error) for group in report.groups if group.error is not None]
    lines += _some(raised, "groups", "red")
    if report.close_error:
        lines.append(Text(f"closing the environment: {one_line(report.close_error, 500)}", style="red"))
    lines += _some([f"worker: {death}" for death in report.worker_deaths], "workers", "yellow")
    lines += _some([f"warning: {warning}" for warning in report.venv.warnings], "warnings", "yellow")
    unreachable = [place for place in report.sandbox.endpoints if place.failed]
    lines += _some(
        [f"cannot connect to {place.endpoint}: {place.reason} ({place.failed} times)" for place in unreachable],
        "places that could not be connected to",
        "yellow",
    )
    if report.headers.refused:
        count = report.headers.not_answered
        reason = one_line(report.headers.refused[0].reason, 300)
        lines.append(Text(f"headers refused: {count}; the first: {reason}", style="yellow"))
    lines.append(
        Text(
            f"sandbox: {report.sandbox.level} (network {report.sandbox.network})"
            f"{' · model gateway' if report.sandbox.credentials == 'gateway' else ''}"
            f" · Python {report.bundle.python_version} · {len(report.venv.packages)} packages"
            f" · model {one_line(report.model.name, 60)}",
            style="dim",
        )
    )
    return lines


def _use(use: ModelUseFacts) -> str:
    about = "about " if use.estimated else ""
    parts = [
        f"{use.calls}" + (f" ({use.failed} failed)" if use.failed else ""),
        f"{about}{use.prompt_tokens:,} prompt and {use.completion_tokens:,} completion tokens",
    ]
    if use.seconds:
        parts.append(f"median {statistics.median(use.seconds):.3g} s")
    return " · ".join(parts)


def _raised(position: int, error: str) -> str:
    return error if error.startswith("group ") else f"group {position}: {error}"


def _some(texts: Sequence[str], what: str, style: str) -> list[Text]:
    """A line for each of the first texts, and how many there are beyond."""
    lines = [Text(one_line(text, 500), style=style) for text in texts[:MAX_LINES]]
    if len(texts) > MAX_LINES:
        lines.append(Text(f"… {len(texts) - MAX_LINES} more {what}, all in the JSON", style=style))
    return lines


def _fitting(names: Iterable[str], width: int) -> list[str]:
    """The first components that fit beside the other columns; all of them are in the JSON."""
    room = width - 50
    found: list[str] = []
    for name in names:
        room -= max(5, len(one_line(name, 20))) + 2
        if len(found) == MAX_COMPONENTS or (found and room < 0):
            break
        found.append(name)
    return found


def _outcomes(report: Report, names: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("rollout", no_wrap=True)
    table.add_column("ended", no_wrap=True)
    for name in names:
        table.add_column(one_line(name, 20), justify="right", no_wrap=True)
    table.add_column("s", justify="right", no_wrap=True)
    table.add_column("")
    for group in report.groups:
        for outcome in group.outcomes:
            table.add_row(*_row(outcome, names))
    return table


def _row(outcome: OutcomeFacts, names: Sequence[str]) -> list[Text]:
    style = "" if outcome.ok else "red"
    return [
        Text(one_line(outcome.rollout_id, 60), style=style),
        Text(one_line(outcome.termination_reason, 30), style=style),
        *(Text(_number(outcome.rewards[name]) if name in outcome.rewards else "–") for name in names),
        Text("" if outcome.seconds is None else f"{outcome.seconds:.2f}"),
        Text(one_line(outcome.cause, 160), style="red"),
    ]


def _groups(report: Report, names: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("example", "ok", "failed", "missing"):
        table.add_column(title, justify="left" if title == "example" else "right", no_wrap=True)
    for name in names:
        table.add_column(one_line(name, 20), justify="right", no_wrap=True)
    for group in report.groups[:MAX_ROWS]:
        table.add_row(*_group_row(group, names))
    if len(report.groups) > MAX_ROWS:
        table.add_row(Text(f"… {len(report.groups) - MAX_ROWS} more examples, all in the JSON", style="dim"))
    return table


def _group_row(group: GroupFacts, names: Sequence[str]) -> list[Text]:
    ok = sum(outcome.ok for outcome in group.outcomes)
    cells = [
        Text(f"{group.position}-{one_line(group.example_id[:8], 8)}"),
        Text(str(ok)),
        Text(str(len(group.outcomes) - ok)),
        Text(str(group.rollouts - len(group.outcomes))),
    ]
    for name in names:
        values = [outcome.rewards[name] for outcome in group.outcomes if name in outcome.rewards]
        cells.append(Text(_number(sum(values) / len(values)) if values else "–"))
    return cells


def _number(value: float) -> str:
    return f"{value:.3g}"


def _mean(value: float) -> str:
    return f"{value:.3f}" if abs(value) < 1e6 else f"{value:.3g}"
