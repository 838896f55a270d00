"""The page of a validation: verdict, findings and checks, then the rollouts of its first pass as on that of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from benchmax.bundle.findings.finding import Finding
from runner.report.page import embedding
from runner.report.page.blocks import judgement, section, table
from runner.report.page.document import FINDINGS, ROLLOUTS, SURROUNDINGS, document, on_rollouts
from runner.report.page.figures import counted, duration
from runner.report.page.findings import Notice, notices
from runner.report.page.markup import Markup, element
from runner.report.page.sections import listed
from runner.report.page.surroundings import surroundings
from runner.report.value import HeaderFacts, Report
from runner.text import one_line
from runner.validation.codes import CHECKS
from runner.validation.verdict import CheckFacts, Judgement, Verdict

MAX_FINDINGS: Final = 200
"""Findings that are listed; the JSON has them all."""

MAX_CHARACTERS: Final = 1000
"""Of one text of a finding or a check; what is longer is in the JSON."""

MAX_CHECKS: Final = 100
"""Checks that have a row; a release has a handful."""

CHECKS_LINK: Final = ("checks", "Checks")
PASS_LINK: Final = ("pass", "First pass")

WORDS: Final[Mapping[Judgement, tuple[str, str]]] = {
    "valid": ("Valid", "good"),
    "invalid": ("Invalid", "bad"),
    "unjudged": ("Not judged", "open"),
}
"""What judgements are called, and how they look."""

SIGNS: Final = {"passed": "good", "failed": "bad", "skipped": "open"}


def validation_page(verdict: Verdict) -> bytes:
    """Return a verdict as an HTML file that needs nothing beside itself, whether anything of the bundle ran or not.

    Equal verdicts give equal bytes.
    """
    run = verdict.first_pass
    places = {} if run is None else embedding.places(run)
    word = WORDS[verdict.judgement][0]
    name = "" if verdict.bundle is None else one_line(verdict.bundle.environment)
    return document(
        title=f"{one_line(name, 80) or 'a bundle'}: {word.lower()}",
        made_of=f"verdict format {verdict.format}",
        heading=name or "A bundle",
        line=one_line(_line(verdict)),
        links=(FINDINGS, CHECKS_LINK, *(() if run is None else (PASS_LINK, *ROLLOUTS)), SURROUNDINGS),
        parts=(
            _verdict(verdict),
            section(*FINDINGS, listed([*map(_notice, verdict.findings[:MAX_FINDINGS])], places), _more(verdict)),
            _checks(verdict),
            *(() if run is None else (_first_pass(verdict, run, places), *on_rollouts(run))),
            surroundings(verdict, _headers(verdict), {} if run is None else run.worker_output),
        ),
        report=run,
    )


def _line(verdict: Verdict) -> str:
    by = f" by benchmax {verdict.benchmax}" if verdict.benchmax else ""
    return f"Validation{by}" if verdict.model is None else f"Validation{by} with {verdict.model.name}"


def _verdict(verdict: Verdict) -> Markup:
    errors, warnings = len(verdict.errors), len(verdict.warnings)
    states = Counter(check.state for check in verdict.checks)
    if verdict.judgement == "unjudged":
        because = next((check.why for check in verdict.checks if check.state == "skipped"), "")
        why = f"There is no verdict: {_bounded(because) or 'a check that it needs was skipped'}."
    else:
        why = f"{counted(errors, 'error')}, {counted(warnings, 'warning')}."
    facts = [
        ("errors", f"{errors:,}"),
        ("warnings", f"{warnings:,}"),
        ("checks passed", f"{states['passed']:,}"),
        ("checks failed", f"{states['failed']:,}"),
        ("checks skipped", f"{states['skipped']:,}"),
        ("rollouts", f"{verdict.rollouts:,}"),
        ("took", duration(verdict.seconds)),
    ]
    return judgement(*WORDS[verdict.judgement], why, facts)


def _notice(finding: Finding) -> Notice:
    return Notice(
        finding.severity,
        f"{_bounded(finding.what)}: {_bounded(finding.message)}.",
        (_bounded(finding.where),) if finding.file else (),
        # of many findings the place is a rollout
        rollout_id=finding.what,
        code=finding.code,
        step=_bounded(finding.fix),
    )


def _more(verdict: Verdict) -> Markup | None:
    more = len(verdict.findings) - MAX_FINDINGS
    return element("p", f"{counted(more, 'more finding')} in the JSON.", class_="quiet") if more > 0 else None


def _checks(verdict: Verdict) -> Markup:
    rows = [
        (
            _bounded(one_line(check.name)),
            element("span", check.state, class_=f"state {SIGNS[check.state]}"),
            element("span", _looked_at(check), class_="sentence"),
            duration(check.seconds) if check.seconds else "–",
        )
        for check in verdict.checks[:MAX_CHECKS]
    ]
    heads = ("check", "state", "what", "took")
    return section(*CHECKS_LINK, table("Checks, in their order", heads, rows, numbers=(3,)))


def _looked_at(check: CheckFacts) -> str:
    about = CHECKS.get(check.name, "")
    if check.state == "skipped":
        return _bounded(check.why)
    return f"{about} ({_bounded(check.why)})" if check.why else about


def _first_pass(verdict: Verdict, run: Report, places: Mapping[str, int]) -> Markup:
    """Say what the rollouts of the first pass showed, which all that follows is about."""
    others = verdict.rollouts - len(run.outcomes)
    told = f"What follows is about the first pass: {counted(run.expected, 'rollout')}, {run.ok:,} ended well."
    if others > 0:
        told += f" The {counted(others, 'other rollout')} repeated these, or had a failure put in their way."
    if verdict.report is None:
        told += " Of the first pass this verdict has the first two siblings only."
    return section(*PASS_LINK, element("p", told), listed(notices(run), places))


def _headers(verdict: Verdict) -> HeaderFacts | None:
    return None if verdict.report is None else verdict.report.headers


def _bounded(text: str) -> str:
    return text if len(text) <= MAX_CHARACTERS else f"{text[: MAX_CHARACTERS - 1]}…"
