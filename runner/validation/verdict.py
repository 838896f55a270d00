"""The verdict on a bundle: what every view is made from, and its JSON.

The JSON carries an integer `format`. Readers ignore fields they do not know; fields are only ever added, with
defaults.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from benchmax.bundle.findings.finding import Finding
from runner.report.value import FORMAT as REPORT_FORMAT
from runner.report.value import (
    BundleFacts,
    DatasetFacts,
    GroupFacts,
    HeaderFacts,
    ModelFacts,
    OutcomeFacts,
    Report,
    SandboxFacts,
    VenvFacts,
)
from runner.text import printable_json

FORMAT: Final = 1

EXIT_VALID: Final = 0
EXIT_INVALID: Final = 1
EXIT_UNJUDGED: Final = 3

Judgement = Literal["valid", "invalid", "unjudged"]
State = Literal["passed", "failed", "skipped"]


class CheckFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one check.

    Args:
        name: Which, from `runner.validation.codes.CHECKS`.
        state: `passed`, `failed` when it has found an error, `skipped` when it could not be done or has no object.
        why: Why it was skipped; of others what was looked at, or empty.
        seconds: How long it took; 0 when it was skipped.
    """

    name: str
    state: State
    why: str = ""
    seconds: float = 0.0


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What a validation has found.

    Args:
        format: Of its JSON.
        judgement: `valid` without errors, `invalid` with one, `unjudged` where there is none but a check without which
            there is no verdict was skipped.
        bundle: Which bundle; `None` where not even its metadata could be read, as are the others up to `dataset` where
            it did not get that far.
        venv: Where it ran.
        sandbox: How it was confined.
        model: Which model was asked.
        dataset: Which examples there were.
        findings: What is wrong, errors first.
        checks: Every check, in their order.
        siblings: The outcomes of the two siblings of the first example.
        report: The whole first pass, as the report of a run has it; `None` where it was not to be kept, or none ran.
        rollouts: Rollouts that ended, of all passes.
        benchmax: The release that judged.
        seconds: How long everything took.
    """

    format: int
    judgement: Judgement
    bundle: BundleFacts | None = None
    venv: VenvFacts | None = None
    sandbox: SandboxFacts | None = None
    model: ModelFacts | None = None
    dataset: DatasetFacts | None = None
    findings: list[Finding] = []
    checks: list[CheckFacts] = []
    siblings: list[OutcomeFacts] = []
    report: Report | None = None
    rollouts: int = 0
    benchmax: str = ""
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether the bundle is valid."""
        return self.judgement == "valid"

    @property
    def errors(self) -> list[Finding]:
        """The findings that make it invalid."""
        return [found for found in self.findings if found.severity == "error"]

    @property
    def warnings(self) -> list[Finding]:
        """The findings that do not."""
        return [found for found in self.findings if found.severity == "warning"]

    @property
    def first_pass(self) -> Report | None:
        """The first pass as far as it is here: of one that was not kept the two siblings; `None` without a rollout."""
        if self.report is not None or not self.siblings:
            return self.report
        if not (self.bundle and self.venv and self.sandbox and self.model and self.dataset):
            return None
        group = GroupFacts(position=0, example_id="not known", outcomes=self.siblings, rollouts=len(self.siblings))
        return Report(
            format=REPORT_FORMAT,
            bundle=self.bundle,
            venv=self.venv,
            sandbox=self.sandbox,
            model=self.model,
            dataset=self.dataset,
            groups=[group],
            headers=HeaderFacts(),
            timings={},
        )

    @property
    def exit_code(self) -> int:
        """The exit code of the command line."""
        return {"valid": EXIT_VALID, "invalid": EXIT_INVALID, "unjudged": EXIT_UNJUDGED}[self.judgement]

    def check(self, name: str) -> CheckFacts:
        """Return what came of a check.

        Raises:
            KeyError: there is none of that name.
        """
        for found in self.checks:
            if found.name == name:
                return found
        raise KeyError(name)

    def to_json(self) -> bytes:
        """Return the verdict as indented JSON with a final newline."""
        # it may well be printed on a terminal
        return printable_json(msgspec.json.format(msgspec.json.encode(self), indent=1)) + b"\n"

    @classmethod
    def from_json(cls, data: bytes) -> Verdict:
        """Read a verdict of this or an older release.

        Raises:
            ValueError: it is not a verdict.
        """
        return msgspec.json.decode(data, type=cls)
