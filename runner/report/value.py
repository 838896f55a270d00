"""The report of a run: what every view is made from, and its JSON.

The JSON carries an integer `format`. Readers ignore fields they do not know; fields are only ever added, with
defaults.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from runner.broker import AuditCount, AuditEntry
from runner.egress import Count
from runner.record import RolloutRecord
from runner.report.model_calls import FindingFacts, KindOfFinding, ModelUseFacts, finding_facts, kinds, model_use, total
from runner.report.replay import ReplayFacts
from runner.sandbox.endpoints import Endpoint
from runner.text import printable_json

FORMAT: Final = 1


class _Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What the parts have in common."""


class BundleFacts(_Facts, frozen=True):
    """Which bundle ran."""

    digest: str
    python_version: str
    benchmax_version: str
    pip_dependencies: list[str]
    environment: str = ""


class VenvFacts(_Facts, frozen=True):
    """Which venv it ran in; `packages` maps canonical name to version."""

    key: str
    path: str
    python: str
    packages: dict[str, str]
    installer: str
    warnings: list[str] = []


class EndpointFacts(_Facts, frozen=True):
    """A place that workers could reach: connections that were made, those that could not be, and why the last not."""

    endpoint: str
    connections: int = 0
    failed: int = 0
    reason: str = ""


class SandboxFacts(_Facts, frozen=True):
    """How it was confined: the level, each mechanism in force, and the user id its processes ran under.

    `not_limited` says what no limit held; `data` whether the worker had the real folder, an overlay or a copy;
    `credentials` whether it was handed headers or the keys of a gateway.
    """

    level: str
    network: str
    mechanisms: list[str]
    uid: int
    hash_seed: str
    endpoints: list[EndpointFacts] = []
    secrets: list[str] = []
    not_limited: list[str] = []
    data: str = ""
    credentials: str = "headers"


class ModelFacts(_Facts, frozen=True):
    """Which model was asked."""

    kind: str
    name: str
    base_url: str


class DatasetFacts(_Facts, frozen=True):
    """Which examples were used: the split, the folder the environment was given, and how many examples it made."""

    split: str
    path: str
    examples: int


class LogFacts(_Facts, frozen=True):
    """One thing a rollout logged or printed."""

    stream: str
    text: str
    level: int = 0
    logger: str = ""


class OutcomeFacts(_Facts, frozen=True):
    """How one rollout ended, and what is known of it.

    `error` is the outcome's own. `cause` is the best text there is on a rollout that did not end well: that error,
    else the last warning it logged (a model that fails leaves `error` empty by contract). `stack` is where it was when
    the runner ended it, or its worker ended. `model_use` is there behind the gateway only. `began` is in seconds since
    the run began, as far as that was seen.
    """

    rollout_id: str
    rewards: dict[str, float]
    termination_reason: str
    error: str | None
    cause: str = ""
    origin: str = "environment"
    ok: bool = False
    seconds: float | None = None
    began: float | None = None
    logs: list[LogFacts] = []
    dropped_logs: int = 0
    transcript: list[Any] | None = None
    transcript_omitted_bytes: int = 0
    stack: str = ""
    model_use: ModelUseFacts | None = None
    findings: list[FindingFacts] = []

    def without_output(self) -> OutcomeFacts:
        """The same with transcript and logs counted as left out."""
        omitted = 0 if self.transcript is None else len(msgspec.json.encode(self.transcript))
        return msgspec.structs.replace(
            self,
            logs=[],
            dropped_logs=self.dropped_logs + len(self.logs),
            transcript=None if self.transcript is None else [],
            transcript_omitted_bytes=self.transcript_omitted_bytes + omitted,
        )


class GroupFacts(_Facts, frozen=True):
    """One group: its example, its rollouts, and what was raised instead, if anything was."""

    position: int
    example_id: str
    outcomes: list[OutcomeFacts]
    rollouts: int
    error: str | None = None
    error_code: str | None = None
    traceback: str = ""


class RefusalFacts(_Facts, frozen=True):
    """One header request that got none.

    `verdict` is `refused` by the policy, `limited` for asking too often, or `failed` with the credential source.
    """

    binding: str | None
    rollout_id: str
    base_url: str
    model: str
    reason: str
    verdict: str = "refused"


class HeaderCountFacts(_Facts, frozen=True):
    """How often requests under one binding (none: rollouts' own auth) for one place had one verdict."""

    binding: str | None
    origin: str
    verdict: str
    count: int


class HeaderFacts(_Facts, frozen=True):
    """The header audit: how many requests were answered, the newest that were not, and counts of all. No values."""

    answered: int = 0
    refused: list[RefusalFacts] = []
    counts: list[HeaderCountFacts] = []

    @property
    def not_answered(self) -> int:
        """How many requests got no headers, those that are not listed included."""
        return max(len(self.refused), sum(found.count for found in self.counts if found.verdict != "answered"))


class Report(_Facts, frozen=True):
    """Everything a run found."""

    format: int
    bundle: BundleFacts
    venv: VenvFacts
    sandbox: SandboxFacts
    model: ModelFacts
    dataset: DatasetFacts
    groups: list[GroupFacts]
    headers: HeaderFacts
    timings: dict[str, float]
    worker_deaths: list[str] = []
    worker_output: dict[str, str] = {}
    close_error: str = ""
    interrupted: bool = False
    replay: ReplayFacts | None = None

    @property
    def expected(self) -> int:
        """Rollouts that were meant to run."""
        return sum(group.rollouts for group in self.groups)

    @property
    def outcomes(self) -> list[OutcomeFacts]:
        """The outcomes of all groups."""
        return [outcome for group in self.groups for outcome in group.outcomes]

    @property
    def ok(self) -> int:
        """Rollouts that ended well: in a reason the environment scores, and without an error."""
        return sum(outcome.ok for outcome in self.outcomes)

    @property
    def failed(self) -> int:
        """Rollouts that ended, but not well."""
        return len(self.outcomes) - self.ok

    @property
    def missing(self) -> int:
        """Rollouts without an outcome: their group raised, or the run was interrupted."""
        return self.expected - len(self.outcomes)

    @property
    def good(self) -> bool:
        """Whether all rollouts ended well, in a replay as they did before, and the environment could be closed."""
        as_recorded = self.replay is None or not self.replay.findings
        return self.ok == self.expected and as_recorded and not self.close_error and not self.interrupted

    def reasons(self) -> Counter[str]:
        """How often each termination reason came up."""
        return Counter(outcome.termination_reason for outcome in self.outcomes)

    def components(self) -> dict[str, tuple[float, int]]:
        """Mean of each reward component over the rollouts that have it, and how many those are."""
        values: dict[str, list[float]] = {}
        for outcome in self.outcomes:
            for name, value in outcome.rewards.items():
                values.setdefault(name, []).append(value)
        return {name: (sum(found) / len(found), len(found)) for name, found in values.items()}

    def model_use(self) -> ModelUseFacts | None:
        """The model calls of all rollouts together; `None` where no gateway saw them."""
        return total(outcome.model_use for outcome in self.outcomes)

    def findings(self) -> list[KindOfFinding]:
        """What was found in model requests, by kind; errors first."""
        return kinds((outcome.rollout_id, outcome.findings) for outcome in self.outcomes)

    def to_json(self) -> bytes:
        """Return the report as indented JSON with a final newline."""
        # it may well be printed on a terminal
        return printable_json(msgspec.json.format(msgspec.json.encode(self), indent=1)) + b"\n"

    @classmethod
    def from_json(cls, data: bytes) -> Report:
        """Read a report of this or an older release.

        Raises:
            ValueError: it is not a report.
        """
        return msgspec.json.decode(data, type=cls)


def endpoint_facts(connections: Mapping[Endpoint, Count]) -> list[EndpointFacts]:
    """Turn what became of workers' connections into its part of the report."""
    return [
        EndpointFacts(endpoint=str(endpoint), connections=count.connections, failed=count.failed, reason=count.reason)
        for endpoint, count in connections.items()
    ]


def header_facts(audit: Iterable[AuditEntry], counts: Iterable[AuditCount]) -> HeaderFacts:
    """Turn the header audit into its part of the report."""
    counted = [
        HeaderCountFacts(binding=found.binding, origin=found.origin, verdict=found.verdict, count=found.count)
        for found in counts
    ]
    return HeaderFacts(
        answered=sum(found.count for found in counted if found.verdict == "answered"),
        refused=[
            RefusalFacts(
                binding=entry.binding,
                rollout_id=entry.rollout_id,
                base_url=entry.base_url,
                model=entry.model,
                reason=entry.reason,
                verdict=entry.verdict,
            )
            for entry in audit
            if not entry.answered
        ],
        counts=counted,
    )


def outcome_facts(record: RolloutRecord, scorable: Iterable[str], *, began: float | None = None) -> OutcomeFacts:
    """Turn a record into its part of the report.

    Args:
        record: What is known of the rollout.
        scorable: The environment's scorable termination reasons.
        began: When it began, in seconds since the run did.
    """
    outcome = record.outcome
    ok = record.origin == "environment" and outcome.termination_reason in set(scorable) and outcome.error is None
    return OutcomeFacts(
        rollout_id=record.rollout_id,
        # an environment may count in integers beyond what JSON readers take
        rewards={name: float(value) for name, value in outcome.rewards.items()},
        termination_reason=outcome.termination_reason,
        error=outcome.error,
        cause="" if ok else record.error_text(),
        origin=record.origin,
        ok=ok,
        seconds=record.seconds,
        began=began,
        logs=[
            LogFacts(stream=line.stream, text=line.text, level=line.level, logger=line.logger) for line in record.logs
        ],
        dropped_logs=record.dropped_logs,
        transcript=record.transcript,
        transcript_omitted_bytes=record.transcript_omitted_bytes,
        stack=record.stack,
        model_use=model_use(record),
        findings=finding_facts(record),
    )
