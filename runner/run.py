"""One run of a bundle: a dataset, some examples, a group of rollouts for each, and a report.

Comes in: an artifact and what to do with it. Goes out: a `Report`; records are handed on as they come. A group that
raises is recorded and the run goes on. Raises only for what keeps the run from starting.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from benchmax.auth import ModelAuth, ModelRequestContext
from benchmax.envs.shared_types import Example, RolloutRequest
from runner.artifact import Artifact
from runner.environ import HASH_SEED
from runner.errors import DatasetError, RemoteError, RunnerError
from runner.handle import ExampleHandle
from runner.isolated import IsolatedEnvironment
from runner.isolating import isolate
from runner.models import SampleAuth
from runner.models.command import Announcement
from runner.plan import RunPlan
from runner.provision import Cache
from runner.provision.plan import check_series
from runner.record import (
    Event,
    OnEvent,
    PhaseEvent,
    RecordEvent,
    RolloutRecord,
    RolloutsEndedEvent,
    WorkerEvent,
)
from runner.recording.course import Course
from runner.report.tally import Count, Tally
from runner.report.value import (
    FORMAT,
    BundleFacts,
    DatasetFacts,
    GroupFacts,
    ModelFacts,
    OutcomeFacts,
    Report,
    SandboxFacts,
    VenvFacts,
    endpoint_facts,
    header_facts,
    outcome_facts,
)
from runner.sandbox.levels import what_is_not_limited
from runner.sandbox.machine import this_machine
from runner.sandbox.plan import mechanisms

__all__ = ["Run", "RunPlan"]


class Run:
    """A run under way. Its partial report can be had at any time, also after a failure or an interruption.

    Args:
        artifact: What to run.
        plan: What to do with it.
        cache: Where venvs are kept.
        on_event: Told what happens, on the event loop.
        course: How it goes: from its beginning and without a trace, if it is not said otherwise.
    """

    def __init__(
        self,
        artifact: Artifact,
        plan: RunPlan,
        *,
        cache: Cache,
        on_event: OnEvent | None = None,
        course: Course | None = None,
    ) -> None:
        self._artifact = artifact
        self._plan = plan
        self._cache = cache
        self._listener = on_event
        self._course = course or Course()
        self._outcomes: dict[str, OutcomeFacts] = {}
        self._kept_bytes = self._course.held_bytes
        self._groups: list[GroupFacts] = []
        self._timings: dict[str, float] = {}
        self._began = 0.0
        self._ended: dict[str, float] = {}
        self._env: IsolatedEnvironment | None = None
        self._model: Announcement | None = None
        self._examples = 0
        self._count = Count()
        self._scorable: frozenset[str] = frozenset()
        self._output: dict[str, str] = {}
        self._finished = False
        self._close_error = ""
        self._workers: dict[int, int] = {}
        self._room = asyncio.Condition()
        self._in_flight = 0

    def tally(self) -> Tally:
        """Return how it stands, from whatever thread; the same however many rollouts there are."""
        calls = None if self._env is None else self._env.calls_in_flight
        return self._count.tally(unscored=len(self._ended), calls=calls)

    async def run(self) -> Report:
        """Do all of it.

        Raises:
            RunnerError: the run could not start: no venv, no worker, no model, no dataset; or it could not be kept.
        """
        try:
            await self._run()
        finally:
            self._course.ended(self.report())
        report = self.report()
        assert report is not None
        return report

    async def _run(self) -> None:
        self._began = began = time.monotonic()
        # known from the metadata alone, so nothing is started for it
        check_series(self._artifact.bundle.metadata)
        endpoints = () if self._plan.model.base_url is None else (self._plan.model.base_url,)
        # what is wrong with the options is found before anything takes time
        env = self._isolate(endpoints)
        plan = await self._course.prepare(self._plan, self._cache, self._listener)
        if plan is not self._plan:
            self._plan = plan
            env = self._isolate(endpoints)
        # with the gateway nothing but that has to be within reach
        own_server = plan.network == "model-only" and plan.model.base_url is None and env.credentials == "headers"
        model = self._course.serving(plan, self._cache, self._listener)
        self._env = env
        try:
            async with contextlib.AsyncExitStack() as stack:
                if own_server:
                    # its address is known only once it runs; what was wrong with the options has been found above
                    announced = await stack.enter_async_context(model)
                    self._env = env = self._isolate((announced.base_url,))
                    stack.push_async_callback(self._close, env)
                    await env.start()
                    self._model = announced
                else:
                    stack.push_async_callback(self._close, env)
                    # the model's server loads while the venv is made; the first failure ends the other
                    async with asyncio.TaskGroup() as group:
                        serving_task = group.create_task(stack.enter_async_context(model))
                        group.create_task(env.start())
                    self._model = serving_task.result()
                self._timings["start_s"] = time.monotonic() - began
                self._course.started(env, self._model)
                await self._work(env, self._model)
                self._finished = True
        except BaseExceptionGroup as failed:
            failure = _first_failure(failed)
            if isinstance(failure, RemoteError):
                failure.hint = failure.hint or "That is code of the bundle: mend it and bundle it again."
            raise failure from None
        finally:
            self._timings["total_s"] = time.monotonic() - began
            for process in self._workers.values():
                os.close(process)
            self._workers.clear()

    def _isolate(self, endpoints: Sequence[str]) -> IsolatedEnvironment:
        plan = self._plan
        env = isolate(
            self._artifact,
            auth=plan.auth,
            sandbox=plan.sandbox,
            network=plan.network,
            endpoints=endpoints if plan.network == "model-only" else (),
            allow=plan.allow,
            secrets=plan.secrets,
            credentials=plan.credentials,
            workers=plan.workers,
            data=plan.data,
            limits=plan.limits,
            python=plan.python,
            provisioning=plan.provisioning,
            cache=self._cache,
            on_event=self._on_event,
            exchange=self._course.exchange,
        )
        self._course.use(env.clean)
        return env

    def outcome(self, rollout_id: str) -> OutcomeFacts:
        """Return how a rollout ended.

        Raises:
            KeyError: it has not.
        """
        return self._outcomes[rollout_id]

    def kill(self) -> None:
        """Kill the workers, for a caller that has cancelled `run` and will not wait for an orderly end."""
        for process in self._workers.values():
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(process, signal.SIGKILL)

    async def _close(self, env: IsolatedEnvironment) -> None:
        self._output = env.output()
        try:
            await env.aclose()
        except RunnerError as error:
            # the bundle's code; what its rollouts have given is not lost for it
            self._close_error = str(error)

    async def _work(self, env: IsolatedEnvironment, model: Announcement) -> None:
        plan = self._plan
        self._scorable = env.scorable_termination_reasons
        self._phase("dataset", f"creating the {plan.split} dataset")
        began = time.monotonic()
        try:
            dataset = await env.create_dataset(plan.split, plan.data, max_examples=plan.max_examples)
        except RemoteError as error:
            if error.remote_type in ("FileNotFoundError", "NotADirectoryError"):
                error.hint = error.hint or (
                    f"It was given {plan.data.absolute()}: check --data and --split; paths must begin with base_dir."
                )
            raise
        self._timings["dataset_s"] = time.monotonic() - began
        examples = list(dataset)[: plan.max_examples]
        if not examples:
            raise DatasetError(
                f"the {plan.split} dataset is empty.",
                hint=f"create_dataset found no example in {plan.data.absolute()}: check --data and --split.",
            )
        self._course.dataset([example.id for example in examples])
        self._examples = len(examples)
        self._groups = [
            GroupFacts(position=i, example_id=example.id, outcomes=[], rollouts=plan.group_size)
            for i, example in enumerate(examples)
        ]
        due = [self._due_of(group, scores_groups=env.scores_groups) for group in self._groups]
        self._count.expected = len(examples) * plan.group_size
        apart = self._course.apart and not env.scores_groups
        began = time.monotonic()
        try:
            async with asyncio.TaskGroup() as group:
                for position, (example, rollout_ids) in enumerate(zip(examples, due, strict=True)):
                    # nothing, where all of a group stands
                    size = 1 if apart else plan.group_size
                    for start in range(0, len(rollout_ids), size):
                        together = rollout_ids[start : start + size]
                        await self._acquire(len(together))
                        group.create_task(self._run_group(env, model, position, example, together))
        finally:
            self._count.over = True
            self._timings["rollouts_s"] = time.monotonic() - began
            self._phase("close", "ending the workers")

    def _due_of(self, group: GroupFacts, *, scores_groups: bool) -> list[str]:
        """The rollouts of a group that have to run; the outcomes of the others are taken over."""
        rollout_ids = _rollout_ids(group)
        standing = self._course.standing(rollout_ids, scores_groups=scores_groups)
        # when they began is of another run
        replace = msgspec.structs.replace
        self._outcomes.update({rollout_id: replace(facts, began=None) for rollout_id, facts in standing.items()})
        for facts in standing.values():
            self._count.keep(ok=facts.ok, reason=facts.termination_reason)
        return [rollout_id for rollout_id in rollout_ids if rollout_id not in standing]

    async def _run_group(
        self,
        env: IsolatedEnvironment,
        model: Announcement,
        position: int,
        example: Example[ExampleHandle],
        rollout_ids: Sequence[str],
    ) -> None:
        auth, split = self._model_auth(), self._plan.split
        requests = [
            RolloutRequest(rollout_id, example, model.model, model.base_url, auth, split) for rollout_id in rollout_ids
        ]
        error: RunnerError | ValueError | None = None
        self._count.begin(len(rollout_ids))
        try:
            await env.run_group(requests)
        except (RunnerError, ValueError) as failure:
            # recorded; the other groups go on
            error = failure
        finally:
            self._count.lose(sum(rollout_id not in self._outcomes for rollout_id in rollout_ids))
            for rollout_id in rollout_ids:
                self._ended.pop(rollout_id, None)
            await self._release(len(rollout_ids))
        if self._course.failure is not None:
            raise self._course.failure
        facts = self._groups[position]
        self._groups[position] = facts = msgspec.structs.replace(facts, outcomes=self._outcomes_of(facts))
        if error is not None and facts.error is None:
            self._groups[position] = msgspec.structs.replace(
                facts,
                error=str(error),
                error_code=getattr(error, "code", None),
                traceback=getattr(error, "detail", ""),
            )

    def _model_auth(self) -> ModelAuth:
        if self._plan.model_auth is not None:
            return self._plan.model_auth
        return Anonymous() if self._plan.model.kind == "endpoint" else SampleAuth()

    async def _acquire(self, size: int) -> None:
        """Wait until a whole group fits into what may be in flight, or nothing else is."""
        async with self._room:
            await self._room.wait_for(
                lambda: self._in_flight == 0 or self._in_flight + size <= self._plan.max_in_flight
            )
            self._in_flight += size

    async def _release(self, size: int) -> None:
        async with self._room:
            self._in_flight -= size
            self._room.notify_all()

    def _phase(self, phase: str, message: str) -> None:
        self._on_event(PhaseEvent(phase=phase, message=message, elapsed_s=time.monotonic() - self._began))

    def _on_event(self, event: Event) -> None:
        if isinstance(event, RecordEvent):
            self._keep(event.record)
        elif isinstance(event, RolloutsEndedEvent):
            self._ended.update(dict.fromkeys(event.rollout_ids, time.monotonic() - self._began))
        elif isinstance(event, WorkerEvent):
            self._on_worker(event)
        if self._listener is not None:
            self._listener(event)

    def _keep(self, record: RolloutRecord) -> None:
        ended = self._ended.pop(record.rollout_id, None)
        began = None if ended is None or record.seconds is None else round(max(0.0, ended - record.seconds), 3)
        facts = outcome_facts(record, self._scorable, began=began)
        self._course.keep(record, facts)
        if self._kept_bytes + record.held_bytes > self._plan.limits.report_bytes:
            facts = facts.without_output()
        else:
            self._kept_bytes += record.held_bytes
        self._outcomes[record.rollout_id] = facts
        self._count.end(ok=facts.ok, reason=facts.termination_reason)

    def _on_worker(self, event: WorkerEvent) -> None:
        """Keep hold of each live worker's process, not of its number, which another process may get."""
        if event.state == "ready":
            # without a hold on it, `kill` has to leave it to its deadline
            with contextlib.suppress(OSError):
                self._workers[event.pid] = os.pidfd_open(event.pid)
        elif event.pid in self._workers:
            os.close(self._workers.pop(event.pid))

    def report(self) -> Report | None:
        """Return what is known so far; `None` before there was a venv and a model."""
        env, model, plan = self._env, self._model, self._plan
        if env is None or model is None:
            return None
        metadata = self._artifact.bundle.metadata
        venv = env.venv
        policy = env.policy
        groups = [self._with_outcomes(group) for group in self._groups]
        return Report(
            format=FORMAT,
            bundle=BundleFacts(
                digest=self._artifact.digest,
                python_version=metadata.python_version,
                benchmax_version=metadata.benchmax_version,
                pip_dependencies=list(metadata.pip_dependencies),
                environment=env.environment_name,
            ),
            venv=VenvFacts(
                key=venv.key,
                path=_shown(venv.path),
                python=_shown(venv.base_python),
                packages=dict(venv.packages),
                installer=venv.installer,
                warnings=list(venv.warnings),
            ),
            sandbox=SandboxFacts(
                level=policy.level,
                network=policy.network,
                mechanisms=list(mechanisms(policy, this_machine())),
                uid=os.geteuid(),
                hash_seed=HASH_SEED,
                endpoints=endpoint_facts(env.connections),
                secrets=list(env.secrets),
                data=env.data,
                credentials=env.credentials,
                not_limited=list(what_is_not_limited(policy.level, plan.limits)),
            ),
            model=ModelFacts(kind=plan.model.kind, name=model.model, base_url=model.base_url),
            dataset=DatasetFacts(split=plan.split, path=_shown(plan.data.absolute()), examples=self._examples),
            groups=groups,
            headers=header_facts(env.audit, env.audit_counts),
            timings=dict(self._timings),
            worker_deaths=list(env.deaths),
            worker_output=self._output or env.output(),
            close_error=self._close_error,
            interrupted=not self._finished,
            replay=self._course.compared(),
        )

    def _with_outcomes(self, group: GroupFacts) -> GroupFacts:
        """A group that was still running has outcomes that it has not collected."""
        if group.outcomes or group.error is not None:
            return group
        return msgspec.structs.replace(group, outcomes=self._outcomes_of(group))

    def _outcomes_of(self, group: GroupFacts) -> list[OutcomeFacts]:
        return [self._outcomes[name] for name in _rollout_ids(group) if name in self._outcomes]


class Anonymous:
    """A `ModelAuth` for endpoints that want no credential."""

    async def headers_for_request(self, context: ModelRequestContext) -> dict[str, str]:
        """Return no headers."""
        return {}


def _rollout_ids(group: GroupFacts) -> list[str]:
    """Ids that are the same in every run."""
    return [f"{group.position}-{group.example_id[:8]}-{k}" for k in range(group.rollouts)]


def _shown(path: Path) -> str:
    """A path as text that JSON can carry, whatever bytes its name has."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _first_failure(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The failure that came first; what it cancelled says nothing of its own."""
    first = group.exceptions[0]
    return _first_failure(first) if isinstance(first, BaseExceptionGroup) else first
