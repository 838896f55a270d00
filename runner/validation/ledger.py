"""The findings and checks of a validation under way: each kind of finding is told once, each check has one state."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from benchmax.bundle.findings.finding import Finding
from runner.text import one_line
from runner.validation.codes import CHECKS, ESSENTIAL, KINDS
from runner.validation.verdict import CheckFacts, Judgement, State

MAX_CHARS: Final = 1_000
"""Of one text of a finding; it may quote what code of the bundle says."""

MAX_OF_A_KIND: Final = 20
"""Findings of one kind; what goes wrong everywhere mostly goes wrong in the same way."""


class Ledger:
    """Takes down what is found and which checks were made."""

    def __init__(self) -> None:
        self._findings: list[Finding] = []
        self._checks: dict[str, CheckFacts] = {}
        self._failed: set[str] = set()

    def find(self, finding: Finding, *, check: str = "") -> None:
        """Take down a finding.

        Args:
            finding: What; one of the same kind at the same place is told once.
            check: Which check has found it, if another than its kind says.
        """
        alike = [one for one in self._findings if one.code == finding.code]
        finding = replace(
            finding,
            what=_text(finding.what),
            message=_text(finding.message).rstrip("."),
            fix=_text(finding.fix),
        )
        if finding.severity == "error":
            self._failed.add(check or KINDS[finding.code].check)
        if any(one.what == finding.what for one in alike) or len(alike) >= MAX_OF_A_KIND:
            return
        self._findings.append(finding)

    def add(self, code: str, what: str, message: str, fix: str, *, check: str = "") -> None:
        """Take down a finding of a kind, with the severity that this has."""
        kind = KINDS[code]
        self.find(Finding(severity=kind.severity, code=code, what=what, message=message, fix=fix), check=check)

    def fail(self, check: str) -> None:
        """Note that a check has shown an error which is told already."""
        self._failed.add(check)

    def has(self, *codes: str) -> bool:
        """Whether there is a finding of one of these kinds."""
        return any(one.code in codes for one in self._findings)

    @property
    def errors(self) -> bool:
        """Whether there is an error."""
        return any(one.severity == "error" for one in self._findings)

    def failed(self, *checks: str) -> bool:
        """Whether one of these checks has found an error."""
        return any(check in self._failed for check in checks)

    @contextmanager
    def checking(self, check: str, why: str = "") -> Iterator[None]:
        """Time a check; it has passed unless it finds an error, is skipped, or is broken off.

        Args:
            check: Which.
            why: What is looked at, if less than all there is.
        """
        began = time.monotonic()
        try:
            yield
        except BaseException:
            if check in self._failed:
                self.done(check, why, seconds=time.monotonic() - began)
            raise
        self.done(check, why, seconds=time.monotonic() - began)

    def done(self, check: str, why: str = "", *, seconds: float = 0.0) -> None:
        """Note that a check was made."""
        if check in self._checks:
            return
        state: State = "failed" if check in self._failed else "passed"
        self._checks[check] = CheckFacts(name=check, state=state, why=_text(why), seconds=round(seconds, 3))

    def skip(self, check: str, why: str) -> None:
        """Note that a check cannot be made."""
        self._checks.setdefault(check, CheckFacts(name=check, state="skipped", why=_text(why)))

    def skip_rest(self, why: str) -> None:
        """Note that no further check is made."""
        for check in CHECKS:
            if check in self._failed:
                self.done(check)
            self.skip(check, why)

    @property
    def checks(self) -> list[CheckFacts]:
        """What came of each check, in their order."""
        made = [self._checks[name] for name in CHECKS if name in self._checks]
        # a check that was timed as passed may have been failed by a later one
        return [_failed(one) if one.name in self._failed else one for one in made]

    @property
    def findings(self) -> list[Finding]:
        """Everything found, errors first, then in the order of the checks."""
        order = list(KINDS)
        return sorted(
            self._findings,
            key=lambda one: (one.severity, order.index(one.code) if one.code in KINDS else 0, one.what),
        )

    @property
    def judgement(self) -> Judgement:
        """What it comes to."""
        if self.errors:
            return "invalid"
        made = {one.name for one in self._checks.values() if one.state != "skipped"}
        return "valid" if made.issuperset(ESSENTIAL) else "unjudged"

    def extend(self, findings: Iterable[Finding]) -> None:
        """Take down several findings."""
        for finding in findings:
            self.find(finding)


def _failed(check: CheckFacts) -> CheckFacts:
    return CheckFacts(name=check.name, state="failed", why=check.why, seconds=check.seconds)


def _text(text: str) -> str:
    return one_line(text, MAX_CHARS)
