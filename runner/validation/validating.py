"""`validate`: judges a bundle by looking at it, loading it, running a few of its rollouts, and running them again.

Comes in: an artifact, and how to judge it. Goes out: a `Verdict`. Whatever the bundle does is a finding. The caller's
fault raises, and so does the host's, unless the bundle is known to be invalid by then.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmax.auth import ModelAuth
from benchmax.bundle import Bundle
from benchmax.bundle.findings.finding import Finding
from runner.artifact import Artifact
from runner.environ import HASH_SEED
from runner.errors import RemoteError, RunnerError, WorkerStartError
from runner.models import SampleAuth
from runner.provision import Cache
from runner.provision.plan import check_series
from runner.provision.wheel import own_version
from runner.record import OnEvent
from runner.report.value import BundleFacts, DatasetFacts, ModelFacts, SandboxFacts, VenvFacts, outcome_facts
from runner.run import Anonymous
from runner.sandbox.levels import what_is_not_limited
from runner.sandbox.machine import this_machine
from runner.sandbox.plan import mechanisms
from runner.validation.bindings import Bindings
from runner.validation.codes import KINDS
from runner.validation.examples import check_dataset
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
from runner.validation.workers import Workers

ALONE_S: Final = 60.0
"""What rollouts that run one after the other may take together, about; slow ones are fewer."""


async def validate(
    artifact: Bundle | Artifact | Path | str,
    plan: ValidationPlan | None = None,
    *,
    cache: Cache | None = None,
    on_event: OnEvent | None = None,
) -> Verdict:
    """Judge a bundle.

    Args:
        artifact: A bundle, an artifact, or the folder of one.
        plan: How; with the mock model in the strongest sandbox when `None`.
        cache: Where venvs are kept; the user's cache folder when `None`.
        on_event: Told what happens, on the event loop.

    Returns:
        What was found, whatever the bundle does.

    Raises:
        UsageError: the folder or a file of the artifact is missing, or an option cannot be meant.
        SandboxUnavailableError: the sandbox or network that was asked for does not work here.
        RunnerError: this machine cannot run the bundle: no interpreter, no package index, no room.
    """
    validation = Validation(plan or ValidationPlan(), cache=cache or Cache(), on_event=on_event)
    return await validation.run(artifact)


class Validation:
    """One validation under way.

    Args:
        plan: How to judge.
        cache: Where venvs are kept.
        on_event: Told what happens.
    """

    def __init__(self, plan: ValidationPlan, *, cache: Cache, on_event: OnEvent | None) -> None:
        self._plan = plan
        self._cache = cache
        self._on_event = on_event
        self._ledger = Ledger()
        self._looked: Looked | None = None
        self._workers: Workers | None = None
        self._delayed: Sequence[Finding] = ()
        self._first: Ended | None = None

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
        looked = self._looked = await look(source, self._plan, self._ledger)
        looked.check()
        check_series(looked.artifact.bundle.metadata)
        workers = self._workers = Workers(looked, self._plan, self._ledger, cache=self._cache, on_event=self._on_event)
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
                tape = Taping(clean=stage.env.clean, base_url=asking.model.base_url)
                results = await stage.together(groups, tape, asking)
                tape.settle(name for group in groups for name in group.rollout_ids)
                scorable = stage.env.scorable_termination_reasons
                evidence = Evidence(scorable, tape.bound, Bindings(stage.env, self._plan.auth))
                judged = judge(results, evidence)
                self._first = results[0]
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
        ledger, workers = self._ledger, self._workers
        siblings = []
        if self._first is not None and workers is not None and workers.stages is not None:
            scorable = workers.stages[0].env.scorable_termination_reasons
            siblings = [outcome_facts(record, scorable) for record in self._first.records.values()]
        return Verdict(
            format=FORMAT,
            judgement=ledger.judgement,
            bundle=self._bundle_facts(),
            venv=None if workers is None else _venv_facts(workers),
            sandbox=None if workers is None else self._sandbox_facts(workers),
            model=None if workers is None else self._model_facts(workers),
            dataset=None if workers is None else self._dataset_facts(workers),
            findings=ledger.findings,
            checks=ledger.checks,
            siblings=siblings,
            rollouts=0 if workers is None else workers.rollouts,
            benchmax=own_version(),
            seconds=round(seconds, 3),
        )

    def _bundle_facts(self) -> BundleFacts | None:
        if self._looked is None:
            return None
        metadata = self._looked.artifact.bundle.metadata
        ready = None if self._workers is None else self._workers.stages
        return BundleFacts(
            digest=self._looked.artifact.digest,
            python_version=metadata.python_version,
            benchmax_version=metadata.benchmax_version,
            pip_dependencies=list(metadata.pip_dependencies),
            environment=self._looked.overview.environment if ready is None else ready[0].env.environment_name,
        )

    def _sandbox_facts(self, workers: Workers) -> SandboxFacts | None:
        if workers.stages is None:
            return None
        env = workers.stages[0].env
        return SandboxFacts(
            level=env.policy.level,
            network=env.policy.network,
            mechanisms=list(mechanisms(env.policy, this_machine())),
            uid=os.geteuid(),
            hash_seed=HASH_SEED,
            secrets=list(env.secrets),
            data=env.data,
            not_limited=list(what_is_not_limited(env.policy.level, self._plan.limits)),
        )

    def _model_facts(self, workers: Workers) -> ModelFacts | None:
        if workers.model is None:
            return None
        return ModelFacts(kind=self._plan.model.kind, name=workers.model.model, base_url=workers.model.base_url)

    def _dataset_facts(self, workers: Workers) -> DatasetFacts | None:
        if workers.stages is None or not workers.stages[0].examples:
            return None
        path = os.fsencode(self._plan.data.absolute()).decode("utf-8", "backslashreplace")
        return DatasetFacts(split=self._plan.split, path=path, examples=len(workers.stages[0].examples))


def _venv_facts(workers: Workers) -> VenvFacts | None:
    venv = workers.venv
    if venv is None:
        return None
    return VenvFacts(
        key=venv.key,
        path=os.fsencode(venv.path).decode("utf-8", "backslashreplace"),
        python=os.fsencode(venv.base_python).decode("utf-8", "backslashreplace"),
        packages=dict(venv.packages),
        installer=venv.installer,
        warnings=list(venv.warnings),
    )
