"""The workers of a validation: two that start at once, a third where they do not agree, and the model beside them.

Comes in: a bundle that was looked at. Goes out: stages that are ready, or findings on what keeps it from loading.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Final

from runner.environ import HASH_SEED
from runner.errors import EndpointError, RemoteError, RunnerError, SandboxUnavailableError
from runner.isolating import isolate
from runner.models.command import Announcement
from runner.models.server import serving
from runner.provision import Cache, ProvisionEvent, Venv, lock_beside, provision
from runner.record import Event, OnEvent, PhaseEvent, RecordEvent, RolloutRecord, RolloutsEndedEvent
from runner.sandbox.levels import AUTO
from runner.validation.bindings import Bindings
from runner.validation.imports import missing_module, undeclared
from runner.validation.ledger import Ledger
from runner.validation.passes import Stage
from runner.validation.plan import ValidationPlan
from runner.validation.siblings import quoted
from runner.validation.statics import Looked, StoppedError
from runner.validation.tape import Switch, Through

OnRollout = Callable[[str, RolloutRecord], None]
"""Told of the phase in which a rollout has ended, `rollouts` or `checks`, and what is known of it."""

OTHER_SEED: Final = 1
"""Of the second worker: what depends on hashes of texts, such as the order of a set, is another there."""

_LOAD_FIX: Final = (
    "Declare the packages it needs with --pip, take your own modules along with --local-module; what the constructor "
    "needs is handed over with --arg, or --secret NAME=env:VAR."
)


class Workers:
    """What a validation runs a bundle in.

    Args:
        looked: The bundle.
        plan: How to judge it.
        ledger: Takes down what is found.
        cache: Where venvs are kept.
        on_event: Told what happens.
        on_rollout: Told of each rollout that has ended.
    """

    def __init__(
        self,
        looked: Looked,
        plan: ValidationPlan,
        ledger: Ledger,
        *,
        cache: Cache,
        on_event: OnEvent | None,
        on_rollout: OnRollout | None = None,
    ) -> None:
        self._looked = looked
        self._plan = plan
        self._ledger = ledger
        self._cache = cache
        self._listener = on_event
        self._began = time.monotonic()
        self.model: Announcement | None = None
        """Where the model is; `None` if it cannot be asked."""
        self.without_model = ""
        """Why it cannot."""
        self.venv: Venv | None = None
        self.stages: tuple[Stage, Stage] | None = None
        """Once both are ready."""
        self.rollouts = 0
        """Rollouts that have ended, of all passes."""
        self._on_rollout = on_rollout
        self._every: list[Stage] = []
        self._phase = ""

    @contextlib.asynccontextmanager
    async def ready(self) -> AsyncIterator[tuple[Stage, Stage]]:
        """Have two workers in which the bundle is loaded, for the length of the context.

        Raises:
            StoppedError: its packages cannot be installed, or it does not load; the ledger says why.
            RunnerError: the caller's or the host's fault.
        """
        # what is wrong with the options is found before anything takes time
        stages = (self._stage(int(HASH_SEED)), self._stage(OTHER_SEED))
        async with contextlib.AsyncExitStack() as stack:
            # the model's server loads while the venv is made
            model = asyncio.create_task(self._serve(stack), name="benchmax-model")
            stack.push_async_callback(_settle, model)
            await self._provision(stack)
            try:
                await self._start(stages, model)
                self.stages = stages
                yield stages
            finally:
                await self._close(stages)

    @contextlib.asynccontextmanager
    async def another(self) -> AsyncIterator[Stage]:
        """Have one more, like the first.

        Raises:
            RunnerError: it cannot be had.
        """
        assert self.stages is not None
        stage = self._stage(int(HASH_SEED))
        try:
            await stage.env.start()
            dataset = await stage.env.create_dataset(
                self._plan.split, self._plan.data, max_examples=len(self.stages[0].examples)
            )
            stage.examples = tuple(dataset)
            yield stage
        finally:
            # how it ends has no part in what it was started for
            with contextlib.suppress(RunnerError):
                await stage.env.aclose()

    @property
    def calls_in_flight(self) -> int:
        """Calls to models that they are waiting for."""
        return sum(stage.env.calls_in_flight or 0 for stage in self._every)

    def _stage(self, seed: int) -> Stage:
        plan = self._plan
        stage = Stage(Switch(Through()), self._on_event)
        try:
            stage.env = isolate(
                self._looked.artifact,
                auth=plan.auth,
                sandbox=plan.level,
                network=plan.network_mode,
                allow=plan.allow,
                secrets=plan.secrets,
                credentials="gateway",
                exchange=stage.switch,
                data=plan.data,
                limits=plan.limits,
                python=plan.python,
                provisioning=plan.provisioning,
                cache=self._cache,
                on_event=stage.on_event,
                hash_seed=seed,
            )
        except SandboxUnavailableError as error:
            if plan.sandbox is None:
                error.hint = f"{error.hint} Or name a weaker level that will do: --sandbox landlock, or off.".strip()
            raise
        self._every.append(stage)
        return stage

    async def _serve(self, stack: contextlib.AsyncExitStack) -> None:
        plan = self._plan
        try:
            self.model = await stack.enter_async_context(
                serving(
                    plan.model,
                    cache=self._cache,
                    limits=plan.limits,
                    provisioning=plan.provisioning,
                    model_auth=plan.model_auth,
                    on_event=self._listener,
                )
            )
        except EndpointError as error:
            self.without_model = str(error)

    async def _provision(self, stack: contextlib.AsyncExitStack) -> None:
        plan, artifact = self._plan, self._looked.artifact
        options = plan.provisioning
        options = replace(options, sandbox=plan.level) if options.sandbox == AUTO else options
        with self._ledger.checking("packages"):
            try:
                self.venv = await provision(
                    artifact.bundle.metadata,
                    python=plan.python,
                    cache=self._cache,
                    options=lock_beside(options, artifact.path),
                    limits=plan.limits,
                    on_event=self._on_provision,
                )
            except RunnerError as error:
                if error.fault != "bundle":
                    raise
                code = "build" if error.code == "build" else "requirement"
                fix = error.hint or "Change them, and bundle it again."
                self._ledger.add(code, "its requirements", error.message, fix)
        if self.venv is None:
            raise StoppedError("its packages cannot be installed")
        if self.venv.lease is not None:
            stack.callback(self.venv.lease.release)

    async def _start(self, stages: Sequence[Stage], model: asyncio.Task[None]) -> None:
        trouble = ""
        with self._ledger.checking("load"):
            starts = [stage.env.start() for stage in stages]
            results = await asyncio.gather(model, *starts, return_exceptions=True)
            failures = [result for result in results if isinstance(result, BaseException)]
            if failures:
                trouble = self._refused(failures[0], stages[0])
                if trouble:
                    self._ledger.skip("load", trouble)
        if failures:
            raise StoppedError(trouble or "it does not load")

    def _refused(self, error: BaseException, stage: Stage) -> str:
        """Take down why it does not load; return why that is nobody's fault here, if so."""
        if not isinstance(error, RunnerError) or error.fault != "bundle":
            raise error
        trouble = Bindings(stage.env, self._plan.auth).trouble(error.message)
        if trouble:
            return trouble
        module = missing_module(error) if isinstance(error, RemoteError) else ""
        if module:
            self._ledger.find(undeclared(module, what="its pickle", when="when it is loaded"), check="load")
            return ""
        message = f"in a fresh interpreter, {error.message}"
        self._ledger.add("does-not-load", "its pickle", message, error.hint or _LOAD_FIX)
        return ""

    async def _close(self, stages: Sequence[Stage]) -> None:
        results = await asyncio.gather(*(stage.env.aclose() for stage in stages), return_exceptions=True)
        if self.stages is None:
            return
        with self._ledger.checking("close"):
            for error in results:
                if not isinstance(error, BaseException):
                    continue
                if not isinstance(error, RunnerError) or error.fault != "bundle":
                    raise error
                self._ledger.add("close-raises", "aclose", quoted(error), "Let aclose end soon, and without raising.")

    def _on_provision(self, event: ProvisionEvent) -> None:
        self.tell(event.phase, event.message)

    def _on_event(self, event: Event) -> None:
        if isinstance(event, RecordEvent):
            self.rollouts += 1
            if self._on_rollout is not None:
                self._on_rollout(self._phase, event.record)
        # two workers say the same of how they start, and how rollouts go is nobody's interest before they are judged
        elif not isinstance(event, PhaseEvent | RolloutsEndedEvent) and self._listener is not None:
            self._listener(event)

    def tell(self, phase: str, message: str) -> None:
        """Tell that something has begun."""
        self._phase = phase
        if self._listener is not None:
            self._listener(PhaseEvent(phase=phase, message=message, elapsed_s=time.monotonic() - self._began))


async def _settle(task: asyncio.Task[None]) -> None:
    """End a task whose result nobody wants any more."""
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        # looked at, it is not reported
        task.exception()
