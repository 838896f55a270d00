"""`isolate`: an environment whose code runs in a sandboxed worker, in a venv of its own.

What works with `benchmax.bundle.load_bundle(bundle)` works with `isolate(bundle)`; only the process, the packages
and the trust differ. Nothing that came out of the bundle is imported or unpickled here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from benchmax.bundle import Bundle
from benchmax.envs.dataset import Dataset, validate_max_examples
from benchmax.envs.environment import Environment, freeze_requests
from benchmax.envs.shared_types import (
    DatasetSplit,
    Example,
    RewardMap,
    RolloutAttempt,
    RolloutOutcome,
    RolloutRequest,
    ValidationDiagnostic,
)
from runner.artifact import Artifact
from runner.broker import AuditEntry, AuthValue, Broker
from runner.calls import RolloutCall
from runner.child import Launch
from runner.conversation import Position
from runner.errors import RunnerError, UsageError
from runner.handle import ExampleHandle
from runner.limits import Limits
from runner.pool import Listeners, Pool
from runner.protocol import Ready
from runner.provision import ProvisionEvent, ProvisionOptions, Venv, lock_beside, provision
from runner.provision.cache import Cache
from runner.provision.compilation import Compilation
from runner.record import (
    Event,
    OnEvent,
    OutputEvent,
    PhaseEvent,
    RecordEvent,
    RolloutRecord,
    RolloutsEndedEvent,
)
from runner.redaction import Redactor
from runner.sandbox.policy import BUILT_CREDENTIALS, SandboxPolicy, choose, choose_policy
from runner.shipment import ship


class IsolatedEnvironment(Environment[ExampleHandle, RolloutAttempt]):
    """An environment that runs in worker processes. Made by `isolate`.

    Use it as an async context manager, or call `start` and `aclose`. It belongs to the event loop that started it.
    """

    def __init__(
        self,
        artifact: Artifact,
        *,
        auth: Mapping[str, AuthValue] | None,
        policy: SandboxPolicy,
        workers: int,
        limits: Limits,
        python: str | None,
        cache: Cache,
        provisioning: ProvisionOptions,
        on_event: OnEvent | None,
    ) -> None:
        self._artifact = artifact
        self._redactor = Redactor()
        self._broker = Broker(auth, self._redactor)
        self._policy = policy
        self._limits = limits
        self._python = python
        self._cache = cache
        self._provisioning = provisioning
        self._on_event = on_event
        self._workers = workers
        self._pool: Pool | None = None
        self._starting: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._venv: Venv | None = None
        self._compilation: Compilation | None = None
        self._closed = False
        self._began = time.monotonic()

    # -- life ---------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            # there is no __aexit__ after this, and other workers may have become ready
            await self.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def start(self) -> None:
        """Provision the venv and start the workers; does nothing the second time.

        Raises:
            ProvisionError: no venv could be made; the subclasses say why.
            RemoteError: the bundle cannot be loaded, or its environment's constructor raised.
            WorkerStartError: a worker ended or ran out of time before it was ready.
        """
        self._check_usable()
        if self._starting is None:
            self._loop = asyncio.get_running_loop()
            self._began = time.monotonic()
            self._starting = self._loop.create_task(self._start(), name="benchmax-start")
        await asyncio.shield(self._starting)

    async def _start(self) -> None:
        metadata = self._artifact.bundle.metadata
        self._venv = await provision(
            metadata,
            python=self._python,
            cache=self._cache,
            options=self._provisioning,
            limits=self._limits,
            on_event=self._on_provision,
        )
        self._compilation = Compilation(self._venv, self._limits, self._phase)
        launch = Launch(
            python=self._venv.python,
            boot=await asyncio.to_thread(ship, self._cache.root / "worker"),
            pickled=self._artifact.bundle.pickled,
            metadata=metadata.to_json_bytes(),
            series=metadata.python_version,
            policy=self._policy,
            limits=self._limits,
        )
        self._phase("start", f"starting {self._workers} worker{'s' if self._workers > 1 else ''}")
        listeners = Listeners(
            output=lambda line: self._emit(OutputEvent(line=line)),
            ended=lambda rollout_ids: self._emit(RolloutsEndedEvent(rollout_ids=rollout_ids)),
            worker=self._emit,
            loaded=self._compilation.add,
        )
        self._pool = Pool(launch, self._workers, self._broker, self._redactor, listeners)
        await self._pool.start()
        self._phase("ready", f"{self.environment_name} is constructed")

    async def aclose(self) -> None:
        """Close the environment in its workers and end them. Safe to call twice; always ends.

        Raises:
            RemoteError: the environment's own `aclose` raised. The workers are gone all the same.
        """
        if self._loop is not None and self._loop is not asyncio.get_running_loop():
            raise _other_loop()
        if self._closing is None:
            self._closed = True
            self._closing = asyncio.get_running_loop().create_task(self._close(), name="benchmax-close")
        elif self._closing.done():
            return
        # a caller that is cancelled meanwhile must not leave workers behind
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        if self._starting is not None and not self._starting.done():
            self._starting.cancel()
            await asyncio.wait([self._starting])
        try:
            if self._pool is not None:
                await self._pool.close()
        finally:
            if self._compilation is not None:
                await self._compilation.finish()
            if self._venv is not None and self._venv.lease is not None:
                self._venv.lease.release()

    # -- what the environment says about itself -----------------------------------------------------------

    @property
    def scorable_termination_reasons(self) -> frozenset[str]:  # type: ignore[override]  # a class attribute there
        """Reasons whose rollouts the environment scores.

        Raises:
            RunnerError: the environment has not been started.
        """
        return frozenset(self._said().scorable_termination_reasons)

    @property
    def requires_public_model_endpoint(self) -> bool:
        """Whether the model endpoint has to be reachable from elsewhere.

        Raises:
            RunnerError: the environment has not been started.
        """
        return self._said().requires_public_model_endpoint

    def validation_diagnostics(self) -> Sequence[ValidationDiagnostic]:
        """What the environment finds about its own configuration.

        Raises:
            RunnerError: the environment has not been started.
        """
        clean = self._redactor.clean
        return tuple(
            ValidationDiagnostic(
                finding.severity,
                clean(finding.code),
                clean(finding.message),
                None if finding.location is None else clean(finding.location),
            )
            for finding in self._said().diagnostics
        )

    @property
    def environment_name(self) -> str:
        """Qualified name of the environment's class."""
        return self._said().environment

    @property
    def digest(self) -> str:
        """Digest of the bundle that runs."""
        return self._artifact.digest

    @property
    def venv(self) -> Venv:
        """The venv it runs in.

        Raises:
            RunnerError: the environment has not been started.
        """
        if self._venv is None:
            raise _not_started()
        return self._venv

    @property
    def policy(self) -> SandboxPolicy:
        """How its workers are confined."""
        return self._policy

    @property
    def audit(self) -> tuple[AuditEntry, ...]:
        """Every header request that was answered or refused, in order."""
        return tuple(self._broker.audit)

    @property
    def deaths(self) -> tuple[str, ...]:
        """How workers ended that were not asked to, in order."""
        return () if self._pool is None else tuple(self._pool.deaths)

    def output(self) -> dict[str, str]:
        """Return what the workers wrote to their standard streams outside of rollouts, bounded; dead ones first."""
        children = [] if self._pool is None else [*self._pool.past, *self._pool.children]
        return {
            "stdout": self._redactor.clean("".join(child.stdout.text() for child in children)),
            "stderr": self._redactor.clean("".join(child.stderr.text() for child in children)),
        }

    def clean(self, text: str) -> str:
        """Take every header value that was ever handed out out of a text."""
        return self._redactor.clean(text)

    # -- work ---------------------------------------------------------------------------------------------

    async def create_dataset(
        self, split: DatasetSplit, base_dir: Path, *, max_examples: int | None = None
    ) -> Dataset[ExampleHandle]:
        """Create a dataset in the worker; its examples carry the real ids and an opaque handle as payload.

        Raises:
            RemoteError: the environment's `create_dataset` raised.
            WorkerLostError: the worker ended meanwhile, or the limit of time passed.
            ValueError: `max_examples` is not a positive integer.
        """
        validate_max_examples(max_examples)
        await self.start()
        scope = self._broker.scope()
        base_dir = await asyncio.to_thread(lambda: Path(base_dir).expanduser().resolve())
        number, ids = await self._running().create_dataset(split, base_dir, max_examples, scope)
        return Dataset([Example(example_id, ExampleHandle(self, number, i)) for i, example_id in enumerate(ids)])

    async def run_group(self, requests: Iterable[RolloutRequest[ExampleHandle]]) -> Mapping[str, RolloutOutcome]:
        """Run one group in a worker.

        Raises:
            ValueError: the requests do not form a group, or an example is not from this environment's dataset.
            RemoteError: `run_group` raised in the worker.
            WorkerLostError: no worker could be started any more.
        """
        frozen = freeze_requests(requests)
        _, records = await self._run(frozen, single=False)
        return {record.rollout_id: record.outcome for record in records}

    async def run_rollout(self, request: RolloutRequest[ExampleHandle]) -> RolloutAttempt:
        """Run one rollout in a worker, without group scoring; the four base fields of its attempt come back.

        Raises:
            ValueError: the example is not from this environment's dataset.
            RemoteError: `run_rollout` raised in the worker.
            WorkerLostError: no worker could be started any more.
        """
        call, (record,) = await self._run((request,), single=True)
        if call.attempt is not None:
            return call.attempt
        reason, error = record.outcome.termination_reason, record.outcome.error
        return RolloutAttempt(
            rollout_id=record.rollout_id, termination_reason=reason, rewards=record.outcome.rewards, error=error
        )

    async def compute_group_rewards(self, rollouts: Sequence[RolloutAttempt]) -> Mapping[str, RewardMap] | None:
        """Not available from here: groups are scored in the worker, with attempts that never leave it.

        Raises:
            UsageError: always; use `run_group`.
        """
        raise UsageError("compute_group_rewards cannot be called across processes.", hint="Use run_group.")

    async def _run(
        self, requests: Sequence[RolloutRequest[Any]], *, single: bool
    ) -> tuple[RolloutCall, list[RolloutRecord]]:
        handles = [self._handle(request) for request in requests]
        # captured before the first wait: the caller's bindings are those of now
        scope = self._broker.scope(requests)
        await self.start()
        pool = self._running()
        async with pool.slot() as slot:
            child = await pool.child(slot)
            datasets = {
                number: await pool.ensure_dataset(slot, child, number, scope)
                for number in {handle.dataset for handle in handles}
            }
            positions = [Position(datasets[handle.dataset], handle.position) for handle in handles]
            call = child.conversation.begin(requests, positions, scope, single=single)
        records = await child.conversation.finish(call)
        if any(record.origin == "environment" for record in records):
            pool.worked()
        for record in records:
            self._emit(RecordEvent(record=record))
        return call, records

    def _handle(self, request: RolloutRequest[Any]) -> ExampleHandle:
        payload = getattr(request.example, "payload", None)
        if not isinstance(payload, ExampleHandle) or not payload.belongs_to(self):
            raise ValueError(
                f"the example of rollout {request.rollout_id!r} is not from this environment's dataset; "
                "use examples of a dataset that its own create_dataset returned"
            )
        return payload

    # -- events -------------------------------------------------------------------------------------------

    def _check_usable(self) -> None:
        if self._closed:
            raise RunnerError("the environment is closed.", hint="Make a new one with isolate().")
        if self._loop is not None and self._loop is not asyncio.get_running_loop():
            raise _other_loop()

    def _running(self) -> Pool:
        if self._pool is None:
            raise _not_started()
        return self._pool

    def _said(self) -> Ready:
        ready = self._running().ready
        if ready is None:
            raise _not_started()
        return ready

    def _on_provision(self, event: ProvisionEvent) -> None:
        self._phase(event.phase, event.message)

    def _phase(self, phase: str, message: str) -> None:
        self._emit(PhaseEvent(phase=phase, message=message, elapsed_s=time.monotonic() - self._began))

    def _emit(self, event: Event) -> None:
        if self._on_event is None:
            return
        try:
            self._on_event(event)
        except Exception as error:  # noqa: BLE001 - most events come from a worker's channel, which it would break
            asyncio.get_running_loop().call_exception_handler({"message": "on_event raised", "exception": error})


def _other_loop() -> RunnerError:
    return RunnerError("the environment belongs to another event loop.", hint="Use and close it where it was started.")


def _not_started() -> RunnerError:
    return RunnerError("the environment has not been started.", hint="Use `async with isolate(...) as env:`.")


def isolate(
    bundle: Bundle | Artifact | Path | str,
    *,
    auth: Mapping[str, AuthValue] | None = None,
    sandbox: str = "auto",
    network: str = "open",
    credentials: str = "headers",
    workers: int = 1,
    limits: Limits | None = None,
    python: str | None = None,
    lock: Path | None = None,
    provisioning: ProvisionOptions | None = None,
    cache: Cache | None = None,
    on_event: OnEvent | None = None,
) -> IsolatedEnvironment:
    """Give a bundle's environment, isolated: its code runs in a venv and a process of its own.

    Args:
        bundle: A bundle, or the folder of an artifact.
        auth: What `InjectedAuth` names in the bundle resolve to: a `ModelAuth`, or a `Binding` that also says for
            which URLs. An active `bind_model_auth` replaces it whole.
        sandbox: `auto` (the strongest level there is) or a level.
        network: Network mode; `open` shares the host's.
        credentials: `headers`: the worker gets headers per request, never the credential source.
        workers: Processes to spread groups over.
        limits: What the bundle may use.
        python: An interpreter of the bundle's series, by path; found by itself when `None`.
        lock: A lock to install from. `None` takes the artifact's own `pylock.toml`, if it has one.
        provisioning: How the venv's packages are looked for and chosen, such as the package index.
        cache: Where venvs are kept; the user's cache folder when `None`.
        on_event: Called with each event (phases, records, output), on the event loop.

    Raises:
        UsageError: the folder or a file of the artifact is missing, or an option's value is unknown or not built.
        ArtifactError: the artifact's metadata is broken.
        TypeError, ValueError: an entry of `auth` is not valid.
    """
    if type(workers) is not int or workers < 1:
        raise UsageError(f"workers must be a positive integer, got {workers!r}.")
    choose("credentials", credentials, known=("headers", "gateway"), built=BUILT_CREDENTIALS)
    artifact = Artifact.of(bundle)
    options = provisioning or ProvisionOptions()
    if lock is not None:
        options = replace(options, lock=Path(lock))
    return IsolatedEnvironment(
        artifact,
        auth=auth,
        policy=choose_policy(sandbox, network),
        workers=workers,
        limits=limits or Limits(),
        python=python,
        cache=cache or Cache(),
        provisioning=lock_beside(options, artifact.path),
        on_event=on_event,
    )
