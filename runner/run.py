"""One run of a bundle: a dataset, some examples, a group of rollouts for each, and a report.

Comes in: an artifact and what to do with it. Goes out: a `Report`; records are handed on as they come. A group that
raises is recorded and the run goes on. Raises only for what keeps the run from starting.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmax.auth import ModelAuth, ModelRequestContext
from benchmax.envs.shared_types import DatasetSplit, Example, RolloutRequest
from runner.artifact import Artifact
from runner.broker import AuthValue
from runner.environ import HASH_SEED
from runner.errors import DatasetError, RunnerError, UsageError
from runner.isolated import ExampleHandle, IsolatedEnvironment, isolate
from runner.limits import Limits
from runner.models import ModelChoice, SampleAuth
from runner.models.command import Announcement
from runner.models.server import serving
from runner.provision import Cache
from runner.record import Event, OnEvent, RecordEvent
from runner.report.value import (
    FORMAT,
    BundleFacts,
    DatasetFacts,
    GroupFacts,
    HeaderFacts,
    ModelFacts,
    OutcomeFacts,
    RefusalFacts,
    Report,
    SandboxFacts,
    VenvFacts,
    outcome_facts,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """What to do with a bundle.

    Args:
        model: Which model to ask.
        model_auth: Its credential source; `None` for the models that need none.
        auth: Bindings for the bundle's `InjectedAuth` names.
        data: Folder the environment's `create_dataset` is given.
        split: Which split.
        max_examples: Examples at most; `None` for all.
        group_size: Rollouts per example.
        max_in_flight: Rollouts at the same time; a larger group still runs whole.
        workers: Worker processes.
        sandbox, network, credentials: As `isolate` takes them.
        limits: What the bundle may use.
        python: An interpreter to use instead of the one found.
        index_url: Package index; PyPI when `None`.
    """

    model: ModelChoice
    model_auth: ModelAuth | None = None
    auth: Mapping[str, AuthValue] = field(default_factory=dict)
    data: Path = Path()
    split: DatasetSplit = "eval"
    max_examples: int | None = None
    group_size: int = 4
    max_in_flight: int = 64
    workers: int = 1
    sandbox: str = "auto"
    network: str = "open"
    credentials: str = "headers"
    limits: Limits = field(default_factory=Limits)
    python: str | None = None
    index_url: str | None = None

    def __post_init__(self) -> None:
        for name in ("group_size", "max_in_flight", "workers"):
            value = getattr(self, name)
            if value < 1:
                raise UsageError(f"{name.replace('_', '-')} must be at least 1, got {value}.")
        if self.max_examples is not None and self.max_examples < 1:
            raise UsageError(f"max-examples must be at least 1, got {self.max_examples}.")
        if not self.data.is_dir():
            what = "not a folder" if self.data.exists() else "no such folder"
            raise UsageError(
                f"the dataset path {self.data} does not exist: {what}.",
                hint="Give --data the folder that holds the environment's data files.",
            )


class Run:
    """A run under way. Its partial report can be had at any time, also after a failure or an interruption.

    Args:
        artifact: What to run.
        plan: What to do with it.
        cache: Where venvs are kept.
        on_event: Told what happens, on the event loop.
    """

    def __init__(self, artifact: Artifact, plan: RunPlan, *, cache: Cache, on_event: OnEvent | None = None) -> None:
        self._artifact = artifact
        self._plan = plan
        self._cache = cache
        self._listener = on_event
        self._outcomes: dict[str, OutcomeFacts] = {}
        self._groups: list[GroupFacts] = []
        self._timings: dict[str, float] = {}
        self._env: IsolatedEnvironment | None = None
        self._model: Announcement | None = None
        self._examples = 0
        self._scorable: frozenset[str] = frozenset()
        self._output: dict[str, str] = {}
        self._finished = False
        self._room = asyncio.Condition()
        self._in_flight = 0

    @property
    def expected(self) -> int:
        """Rollouts that will run, once the dataset is known; 0 before."""
        return self._examples * self._plan.group_size

    async def run(self) -> Report:
        """Do all of it.

        Raises:
            RunnerError: the run could not start: no venv, no worker, no model, no dataset.
        """
        began = time.monotonic()
        plan = self._plan
        env = isolate(
            self._artifact,
            auth=plan.auth,
            sandbox=plan.sandbox,
            network=plan.network,
            credentials=plan.credentials,
            workers=plan.workers,
            limits=plan.limits,
            python=plan.python,
            index_url=plan.index_url,
            cache=self._cache,
            on_event=self._on_event,
        )
        model = serving(
            plan.model,
            cache=self._cache,
            limits=plan.limits,
            index_url=plan.index_url,
            model_auth=plan.model_auth,
            on_event=self._listener,
        )
        self._env = env
        try:
            async with contextlib.AsyncExitStack() as stack:
                stack.push_async_callback(self._close, env)
                # the model's server loads while the venv is made; the first failure ends the other
                async with asyncio.TaskGroup() as group:
                    serving_task = group.create_task(stack.enter_async_context(model))
                    group.create_task(env.start())
                self._model = serving_task.result()
                self._timings["start_s"] = time.monotonic() - began
                await self._work(env, self._model)
                self._finished = True
        except BaseExceptionGroup as failed:
            raise _first_failure(failed) from None
        finally:
            self._timings["total_s"] = time.monotonic() - began
        report = self.report()
        assert report is not None
        return report

    async def _close(self, env: IsolatedEnvironment) -> None:
        self._output = env.output()
        await env.aclose()

    async def _work(self, env: IsolatedEnvironment, model: Announcement) -> None:
        plan = self._plan
        self._scorable = env.scorable_termination_reasons
        began = time.monotonic()
        dataset = await env.create_dataset(plan.split, plan.data, max_examples=plan.max_examples)
        self._timings["dataset_s"] = time.monotonic() - began
        examples = list(dataset)[: plan.max_examples]
        if not examples:
            raise DatasetError(
                f"the {plan.split} dataset is empty.",
                hint="create_dataset returned no example: check --split and --data.",
            )
        self._examples = len(examples)
        self._groups = [
            GroupFacts(position=i, example_id=example.id, outcomes=[], rollouts=plan.group_size)
            for i, example in enumerate(examples)
        ]
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for position, example in enumerate(examples):
                await self._acquire()
                group.create_task(self._run_group(env, model, position, example))
        self._timings["rollouts_s"] = time.monotonic() - began

    async def _run_group(
        self, env: IsolatedEnvironment, model: Announcement, position: int, example: Example[ExampleHandle]
    ) -> None:
        plan = self._plan
        requests = [
            RolloutRequest(
                f"{position}-{example.id[:8]}-{k}",
                example,
                model.model,
                model.base_url,
                self._model_auth(),
                plan.split,
            )
            for k in range(plan.group_size)
        ]
        facts = self._groups[position]
        error: RunnerError | ValueError | None = None
        try:
            await env.run_group(requests)
        except (RunnerError, ValueError) as failure:
            # recorded; the other groups go on
            error = failure
        finally:
            await self._release()
        self._groups[position] = GroupFacts(
            position=position,
            example_id=facts.example_id,
            rollouts=plan.group_size,
            outcomes=[self._outcomes[r.rollout_id] for r in requests if r.rollout_id in self._outcomes],
            error=None if error is None else str(error),
            error_code=getattr(error, "code", None),
            traceback=getattr(error, "detail", ""),
        )

    def _model_auth(self) -> ModelAuth:
        if self._plan.model_auth is not None:
            return self._plan.model_auth
        return Anonymous() if self._plan.model.kind == "endpoint" else SampleAuth()

    async def _acquire(self) -> None:
        """Wait until a whole group fits into what may be in flight, or nothing else is."""
        size = self._plan.group_size
        async with self._room:
            await self._room.wait_for(
                lambda: self._in_flight == 0 or self._in_flight + size <= self._plan.max_in_flight
            )
            self._in_flight += size

    async def _release(self) -> None:
        async with self._room:
            self._in_flight -= self._plan.group_size
            self._room.notify_all()

    def _on_event(self, event: Event) -> None:
        if isinstance(event, RecordEvent):
            record = event.record
            self._outcomes[record.rollout_id] = outcome_facts(record, self._scorable)
        if self._listener is not None:
            self._listener(event)

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
                path=str(venv.path),
                python=str(venv.base_python),
                packages=dict(venv.packages),
                installer=venv.installer,
                warnings=list(venv.warnings),
            ),
            sandbox=SandboxFacts(
                level=policy.level,
                network=policy.network,
                mechanisms=list(policy.mechanisms()),
                uid=os.geteuid(),
                hash_seed=HASH_SEED,
            ),
            model=ModelFacts(kind=plan.model.kind, name=model.model, base_url=model.base_url),
            dataset=DatasetFacts(split=plan.split, path=str(plan.data.absolute()), examples=self._examples),
            groups=groups,
            headers=HeaderFacts(
                answered=sum(entry.answered for entry in env.audit),
                refused=[
                    RefusalFacts(
                        binding=entry.binding,
                        rollout_id=entry.rollout_id,
                        base_url=entry.base_url,
                        model=entry.model,
                        reason=entry.reason,
                    )
                    for entry in env.audit
                    if not entry.answered
                ],
            ),
            timings=dict(self._timings),
            worker_deaths=list(env.deaths),
            worker_output=self._output or env.output(),
            interrupted=not self._finished,
        )

    def _with_outcomes(self, group: GroupFacts) -> GroupFacts:
        """A group that was still running has outcomes that it has not collected."""
        if group.outcomes or group.error is not None:
            return group
        prefix = f"{group.position}-{group.example_id[:8]}-"
        found = [self._outcomes.get(f"{prefix}{k}") for k in range(group.rollouts)]
        return GroupFacts(
            position=group.position,
            example_id=group.example_id,
            rollouts=group.rollouts,
            outcomes=[outcome for outcome in found if outcome is not None],
        )


class Anonymous:
    """A `ModelAuth` for endpoints that want no credential."""

    async def headers_for_request(self, context: ModelRequestContext) -> dict[str, str]:
        """Return no headers."""
        return {}


def _first_failure(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The failure that came first; what it cancelled says nothing of its own."""
    first = group.exceptions[0]
    return _first_failure(first) if isinstance(first, BaseExceptionGroup) else first
