"""The course of a run whose models are not asked: a record answers for them, and is what the run is compared with."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Final

from benchmax.auth import ModelRequestContext
from runner.errors import UsageError
from runner.gateway.exchange import Exchange
from runner.isolated import IsolatedEnvironment
from runner.models.command import Announcement
from runner.plan import RunPlan
from runner.provision import Cache
from runner.record import OnEvent, RolloutRecord
from runner.recording.answering import Replayer
from runner.recording.comparing import first_difference
from runner.recording.course import Course
from runner.recording.facts import ExampleFacts, RecordFacts, transcripts
from runner.recording.folder import RecordFolder
from runner.recording.matching import last_attempts
from runner.recording.recording import check_examples
from runner.report.replay import ReplayFacts, ReplayFinding
from runner.report.value import OutcomeFacts

MAX_FINDINGS: Final = 1_000
"""Kept of a replay; one that goes wrong everywhere goes wrong in the same way."""


class StandInAuth:
    """A `ModelAuth` in the place of credentials that a replay does not need: no model is asked."""

    async def headers_for_request(self, context: ModelRequestContext) -> dict[str, str]:
        """Return no headers."""
        return {}


class Replay(Course):
    """Answers from a record, and compares what comes of it.

    Args:
        folder: The record.
        facts: What it is of.

    Raises:
        UsageError: its run was not finished, or it cannot be read.
    """

    def __init__(self, folder: RecordFolder, facts: RecordFacts) -> None:
        report = folder.read_report()
        if report is None or report.interrupted or facts.examples is None or not facts.attempts:
            raise UsageError(
                f"the run recorded in {folder.path} was not finished.",
                hint=f"Finish it first: benchmax run --resume {folder.path}.",
            )
        self._folder = folder
        self._examples = facts.examples
        self._model = Announcement(base_url=report.model.base_url, model=report.model.name)
        # the last one of each counts; transcripts are read again when they are compared
        self._recorded = {line.outcome.rollout_id: place for place, line in folder.outcomes.placed()}
        attempts = last_attempts(folder)
        self._findings: list[ReplayFinding] = []
        self._omitted = 0
        self._outcomes = self._equal = 0
        self._clean: Callable[[str], str] = lambda text: text
        self._replayer = Replayer(folder.calls, attempts, clean=lambda text: self._clean(text), found=self._found)

    @property
    def exchange(self) -> Exchange:
        """What answers from the record."""
        return self._replayer

    @property
    def apart(self) -> bool:
        """As when it was recorded."""
        return True

    def use(self, clean: Callable[[str], str]) -> None:
        """Take what removes secrets."""
        self._clean = clean

    async def prepare(self, plan: RunPlan, cache: Cache, on_event: OnEvent | None) -> RunPlan:
        """Have packages installed from the record's lock."""
        return replace(plan, provisioning=replace(plan.provisioning, lock=self._folder.lock))

    def serving(
        self, plan: RunPlan, cache: Cache, on_event: OnEvent | None
    ) -> AbstractAsyncContextManager[Announcement]:
        """Name the model as it was; no server is started, and none is asked."""
        return self._named()

    @contextlib.asynccontextmanager
    async def _named(self) -> AsyncIterator[Announcement]:
        yield self._model

    def started(self, env: IsolatedEnvironment, model: Announcement) -> None:
        """Know where the model was."""
        self._replayer.base_url = model.base_url

    def dataset(self, example_ids: Sequence[str]) -> None:
        """Check that the examples are those of the record.

        Raises:
            UsageError: they are not.
        """
        check_examples(ExampleFacts.of(example_ids), self._examples)

    def keep(self, record: RolloutRecord, facts: OutcomeFacts) -> None:
        """Compare an outcome with the recorded one."""
        place = self._recorded.get(facts.rollout_id)
        if place is None:
            return
        recorded = self._folder.outcomes.at(place).outcome
        then, now = transcripts(recorded, facts)
        difference = first_difference(_compared(recorded, then), _compared(facts, now))
        self._outcomes += 1
        if difference is None:
            self._equal += 1
            return
        self._found(
            ReplayFinding(
                code="replay_outcome",
                rollout_id=facts.rollout_id,
                message=f"the outcome differs from the recorded one at {difference.path}: "
                f"recorded {difference.first}, now {difference.second}.",
                path=difference.path,
                recorded=difference.first,
                now=difference.second,
            )
        )

    def compared(self) -> ReplayFacts:
        """Return how the replay compares with its record."""
        return ReplayFacts(
            path=str(self._folder.path),
            outcomes=self._outcomes,
            equal=self._equal,
            unused_calls=self._replayer.unused,
            findings=list(self._findings),
            omitted=self._omitted,
        )

    def _found(self, finding: ReplayFinding) -> None:
        if len(self._findings) < MAX_FINDINGS:
            self._findings.append(finding)
        else:
            self._omitted += 1


def _compared(outcome: OutcomeFacts, transcript: object) -> dict[str, object]:
    """What of an outcome has to be the same."""
    return {
        "termination_reason": outcome.termination_reason,
        "error": outcome.error,
        "rewards": outcome.rewards,
        "transcript": transcript,
    }
