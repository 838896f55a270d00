"""`validate`: judges a bundle by looking at it, loading it, running a few of its rollouts, and running them again.

Comes in: an artifact, and how to judge it. Goes out: a `Verdict`. Whatever the bundle does is a finding. The caller's
fault raises, and so does the host's, unless the bundle is known to be invalid by then.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmax.auth import ModelAuth
from benchmax.bundle import Bundle
from benchmax.bundle.findings.finding import Finding
from runner.artifact import Artifact
from runner.errors import RemoteError, RunnerError, WorkerStartError
from runner.models import SampleAuth
from runner.provision import Cache
from runner.provision.plan import check_series
from runner.provision.wheel import own_version
from runner.record import OnEvent
from runner.report.value import Report
from runner.run import Anonymous
from runner.validation.bindings import Bindings
from runner.validation.codes import KINDS
from runner.validation.examples import check_dataset
from runner.validation.facts import Facts
from runner.validation.failures import Baseline, Failures
from runner.validation.imports import Site, delayed, without
from runner.validation.ledger import Ledger
from runner.validation.passes import Asking, Ended, Group, Stage, few_enough, groups_of
from runner.validation.plan import ValidationPlan
from runner.validation.rewards import look_at_rewards
from runner.validation.siblings import Evidence, Problem, judge, warnings
from runner.validation.statics import Looked, StoppedError, look
from runner.validation.steadiness import Repeated, check_steadiness, repeat
from runner.validation.tape import Playbacks, Taping
from runner.validation.verdict import FORMAT, Verdict
from runner.validation.workers import OnRollout, Workers

ALONE_S: Final = 60.0
"""What rollouts that run one after the other may take together, about; slow ones are fewer."""


async def validate(
    artifact: Bundle | Artifact | Path | str,
    plan: ValidationPlan | None = None,
    *,
    cache: Cache | None = None,
    on_event: OnEvent | None = None,
    on_rollout: OnRollout | None = None,
    keep: bool = False,
) -> Verdict:
    """Judge a bundle.

    Args:
        artifact: A bundle, an artifact, or the folder of one.
        plan: How; with the mock model in the strongest sandbox when `None`.
        cache: Where venvs are kept; the user's cache folder when `None`.
        on_event: Told what happens, on the event loop.
        on_rollout: Told of each rollout that has ended, of all passes, on the event loop.
        keep: Whether the verdict has the first pass whole, as its page shows it, and not the first two siblings alone.

    Returns:
        What was found, whatever the bundle does.

    Raises:
        UsageError: the folder or a file of the artifact is missing, or an option cannot be meant.
        SandboxUnavailableError: the sandbox or network that was asked for does not work here.
        RunnerError: this machine cannot run the bundle: no interpreter, no package index, no room.
    """
    validation = Validation(
        plan or ValidationPlan(), cache=cache or Cache(), on_event=on_event, on_rollout=on_rollout, keep=keep
    )
    return await validation.run(artifact)


class Validation:
    """One validation under way.

    Args:
        plan: How to judge.
        cache: Where venvs are kept.
        on_event: Told what happens.
        on_rollout: Told of each rollout that has ended.
        keep: Keep the first pass whole.
    """

    def __init__(
        self,
        plan: ValidationPlan,
        *,
        cache: Cache,
        on_event: OnEvent | None = None,
        on_rollout: OnRollout | None = None,
        keep: bool = False,
    ) -> None:
        self._plan = plan
        self._cache = cache
        self._on_event = on_event
        self._on_rollout = on_rollout
        self._ledger = Ledger()
        self._keep = keep
        self._facts = Facts(plan)
        self._delayed: Sequence[Finding] = ()
        self._first: Ended | None = None
        self._report: Report | None = None

    @property
    def calls_in_flight(self) -> int:
        """Calls to models that its workers are waiting for."""
        workers = self._facts.workers
        return 0 if workers is None else workers.calls_in_flight

    async def run(self, source: Bundle | Artifact | Path | str) -> Verdict:
        """Make every check that can be made.

        Raises:
            RunnerError: as `validate` does.
        """
        began = time.monotonic()
        ledger = self._ledger
        try:
            await self._run(source)
        except StoppedError as stopped:
            why = stopped.why
        except RunnerError as error:
            if error.fault == "bundle":
                why = self._ended_early(error)
            elif error.fault == "usage" or not ledger.errors:
                raise
            else:
                why = f"it could not be tried here: {error}"
        else:
            why = "it has no object here"
        ledger.extend(without(self._delayed, ledger.findings))
        ledger.skip_rest(why)
        return self._verdict(time.monotonic() - began)

    def _ended_early(self, error: RunnerError) -> str:
        """Take down what a worker did that was well before; return why the rest is not looked at."""
        code = "does-not-load" if isinstance(error, RemoteError | WorkerStartError) else "worker-died"
        fix = error.hint or "Find out what differs from one process to the next."
        self._ledger.add(code, "a further worker", f"others had none of it: {error.message}", fix)
        return "a worker failed that was well before"

    async def _run(self, source: Bundle | Artifact | Path | str) -> None:
        looked = self._facts.looked = await look(source, self._plan, self._ledger)
        looked.check()
        check_series(looked.artifact.bundle.metadata)
        workers = Workers(
            looked,
            self._plan,
            self._ledger,
            cache=self._cache,
            on_event=self._on_event,
            on_rollout=self._on_rollout,
        )
        self._facts.workers = workers
        async with workers.ready() as stages:
            await self._judge(looked, workers, stages)

    async def _judge(self, looked: Looked, workers: Workers, stages: tuple[Stage, Stage]) -> None:
        ledger, plan, (first, second) = self._ledger, self._plan, stages
        assert workers.venv is not None
        with ledger.checking("imports"):
            site = Site(workers.venv, looked.overview)
            later = looked.contents.delayed_imports(looked.artifact.bundle.metadata.python_version)
            self._delayed = delayed([one for one in later if not site.has(one.module)])
        self._diagnostics(first)
        workers.tell("dataset", "making the dataset in two workers")
        await check_dataset(stages, plan, ledger)
        if workers.model is None:
            raise StoppedError(f"the model cannot be asked: {workers.without_model}")
        asking = Asking(workers.model, self._model_auth(), plan.split)
        groups = groups_of([example.id for example in first.examples])
        workers.tell("rollouts", f"running {sum(len(group.rollout_ids) for group in groups)} rollouts at once")
        baseline = await self._first_pass(first, groups, asking)
        self._contract(baseline.results)
        with ledger.checking("rewards"):
            ledger.extend(look_at_rewards(baseline.results))
        workers.tell("checks", "running them again alone, and with failures")
        playbacks = Playbacks(baseline.calls, workers.model.base_url)

        few = few_enough(baseline.results, seconds=ALONE_S)

        async def again() -> Repeated:
            return await repeat(second, few, playbacks.new(second.env.clean), asking)

        async def in_a_fresh_process() -> Repeated:
            async with workers.another() as stage:
                return await repeat(stage, few, playbacks.new(stage.env.clean), asking)

        # in a worker each, so that they do not disturb each other
        failures = Failures(ledger, first, baseline, playbacks, asking)
        outcomes = await asyncio.gather(
            check_steadiness(ledger, baseline.results, len(few), again, in_a_fresh_process),
            failures.check(),
            return_exceptions=True,
        )
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        failures.settle()

    def _diagnostics(self, stage: Stage) -> None:
        ledger = self._ledger
        with ledger.checking("diagnostics"):
            for number, found in enumerate(stage.env.validation_diagnostics()):
                code = "validation-diagnostic" if found.severity == "error" else "validation-warning"
                where = found.location or f"{found.severity}-{number}"
                ledger.add(code, where, f"{found.code}: {found.message}", "Change that setting of the harness.")
        if ledger.failed("diagnostics"):
            raise StoppedError("it finds errors in its own configuration")

    async def _first_pass(self, stage: Stage, groups: Sequence[Group], asking: Asking) -> Baseline:
        """Run all groups at once; what may have been bad luck is tried a second time, as clients do.

        Raises:
            StoppedError: rollouts do not end well, or cannot be judged.
        """
        ledger, blocked = self._ledger, ""
        unlucky: Problem | None = None
        with ledger.checking("siblings"):
            while True:
                began = time.monotonic()
                tape = Taping(clean=stage.env.clean, base_url=asking.model.base_url)
                results = await stage.together(groups, tape, asking)
                tape.settle(name for group in groups for name in group.rollout_ids)
                scorable = stage.env.scorable_termination_reasons
                evidence = Evidence(scorable, tape.bound, Bindings(stage.env, self._plan.auth))
                judged = judge(results, evidence)
                self._first = results[0]
                if self._keep:
                    self._report = self._facts.first_pass(results, began)
                if unlucky is not None or not judged.worth_repeating:
                    break
                unlucky = judged.problems[0]
            if judged.problems:
                ledger.extend(judged.findings())
            elif judged.blocked:
                blocked = judged.blocked
                ledger.skip("siblings", blocked)
            else:
                ledger.extend(warnings(results, evidence))
                if unlucky is not None:
                    message = f"the first time {unlucky.message}; the second time all was well"
                    ledger.add("unsteady", unlucky.who, message, "Find out what it depends on.")
        if blocked or judged.problems:
            raise StoppedError(blocked or "rollouts do not end well")
        return Baseline(results, tape.calls, evidence, stage.env.scores_groups)

    def _contract(self, results: Sequence[Ended]) -> None:
        """Take down what the first pass asked of the model that training could not honour, each kind and place once."""
        with self._ledger.checking("contract"):
            for record in (record for result in results for record in result.records.values()):
                for found in record.diagnostics:
                    self._ledger.find(
                        Finding(
                            severity=found.severity,
                            code=found.code,
                            what=found.field or "its requests",
                            message=f"{record.rollout_id}, call {found.call}: {found.message}",
                            fix="Change the harness's requests so.",
                        ),
                        check=KINDS[found.code].check,
                    )

    def _model_auth(self) -> ModelAuth:
        if self._plan.model_auth is not None:
            return self._plan.model_auth
        return Anonymous() if self._plan.model.kind == "endpoint" else SampleAuth()

    def _verdict(self, seconds: float) -> Verdict:
        ledger, facts = self._ledger, self._facts
        return Verdict(
            format=FORMAT,
            judgement=ledger.judgement,
            bundle=facts.bundle(),
            venv=facts.venv(),
            sandbox=facts.sandbox(),
            model=facts.model(),
            dataset=facts.dataset(),
            findings=ledger.findings,
            checks=ledger.checks,
            siblings=[] if self._first is None else facts.outcomes(self._first),
            report=self._report,
            rollouts=0 if facts.workers is None else facts.workers.rollouts,
            benchmax=own_version(),
            seconds=round(seconds, 3),
        )
