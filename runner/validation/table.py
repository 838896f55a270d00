"""The verdict on a terminal: a row per check, then each finding with what to do about it, then what it comes to."""

from __future__ import annotations

from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmax.bundle.findings.finding import Finding
from runner.report.value import OutcomeFacts
from runner.text import one_line
from runner.validation.codes import CHECKS
from runner.validation.verdict import CheckFacts, Verdict

_STATES: Final = {"passed": "green", "failed": "red", "skipped": "yellow"}
_SEVERITIES: Final = {"error": "red", "warning": "yellow"}
_JUDGEMENTS: Final = {"valid": "green", "invalid": "red", "unjudged": "yellow"}


def show(verdict: Verdict, console: Console) -> None:
    """Print a verdict."""
    console.print(_checks(verdict))
    for finding in verdict.findings:
        for line in _finding(finding):
            console.print(line, soft_wrap=True)
    for outcome in verdict.siblings:
        console.print(_sibling(outcome), soft_wrap=True)
    for line in _facts(verdict):
        console.print(line, soft_wrap=True)
    console.print(_judgement(verdict), soft_wrap=True)


def _checks(verdict: Verdict) -> Table:
    table = Table(box=None, pad_edge=False)
    for title in ("check", "state", "what is looked at"):
        table.add_column(title)
    for check in verdict.checks:
        state = Text(check.state, _STATES.get(check.state, ""))
        table.add_row(one_line(check.name, 40), state, one_line(_what(check), 300))
    return table


def _what(check: CheckFacts) -> str:
    return f"skipped: {check.why}" if check.state == "skipped" else check.why or CHECKS.get(check.name, "")


def _finding(finding: Finding) -> tuple[Text, Text, Text]:
    head = f"\n{finding.severity}: {one_line(finding.code, 60)}: {one_line(finding.what, 200)}"
    style = _SEVERITIES.get(finding.severity, "")
    return Text(head, style), Text(f"  {one_line(finding.message, 1000)}."), Text(f"  {one_line(finding.fix, 1000)}")


def _sibling(outcome: OutcomeFacts) -> Text:
    rewards = ", ".join(f"{one_line(name, 40)} {value:g}" for name, value in [*outcome.rewards.items()][:8])
    end = f"{one_line(outcome.rollout_id, 80)}: {one_line(outcome.termination_reason, 40)}"
    trouble = "" if outcome.ok else f": {one_line(outcome.cause, 300)}"
    return Text(f"{end}, {rewards or 'no rewards'}{trouble}", "" if outcome.ok else "red")


def _facts(verdict: Verdict) -> list[Text]:
    venv, sandbox = verdict.venv, verdict.sandbox
    lines = [Text(f"warning: {one_line(text, 500)}", "yellow") for text in (venv.warnings if venv is not None else [])]
    parts = []
    if sandbox is not None:
        parts.append(f"sandbox: {sandbox.level} (network {sandbox.network})")
    if venv is not None and verdict.bundle is not None:
        parts.append(f"Python {one_line(verdict.bundle.python_version, 20)} · {len(venv.packages)} packages")
    if verdict.model is not None:
        parts.append(f"model {one_line(verdict.model.name, 60)}")
    if parts:
        lines.append(Text(" · ".join(parts), "dim"))
    return lines


def _judgement(verdict: Verdict) -> Text:
    style = _JUDGEMENTS.get(verdict.judgement, "")
    counts = f"{_number(len(verdict.errors), 'error')}, {_number(len(verdict.warnings), 'warning')}"
    took = f"{verdict.rollouts} rollouts in {verdict.seconds:.1f} s"
    if verdict.judgement != "unjudged":
        return Text(f"{verdict.judgement}: {counts}; {took}", style)
    why = next((check.why for check in verdict.checks if check.state == "skipped"), "")
    return Text(f"not judged: {one_line(why, 500)}; {counts}; {took}", style)


def _number(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
