"""An environment whose code runs in sandboxed workers, in a venv of its own.

What works with `benchmax.bundle.load_bundle(bundle)` works with `isolate(bundle)`; only the process, the packages
and the trust differ. Nothing that came out of the bundle is imported or unpickled here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from benchmax.envs.dataset import Dataset, validate_max_examples
from benchmax.envs.environment import freeze_requests
from benchmax.envs.shared_types import (
    DatasetSplit,
    Example,
    RewardMap,
    RolloutAttempt,
    RolloutOutcome,
    RolloutRequest,
)
from runner.account import Account
from runner.artifact import Artifact
from runner.broker import AuthValue, Broker
from runner.egress import Traffic, relays
from runner.environ import HASH_SEED
from runner.errors import RunnerError, UsageError, WorkerLostError
from runner.gateway.exchange import Exchange
from runner.handle import DatasetToken, ExampleHandle, check_examples
from runner.intermediary import Intermediary
from runner.launch import Launch, what_it_reads
from runner.limits import Limits
from runner.pool import Listeners, Pool
from runner.provision import ProvisionOptions, Venv, provision
from runner.provision.cache import Cache
from runner.provision.compilation import Compilation
from runner.reach import GATEWAY, Reach
from runner.record import (
    Event,
    OnEvent,
    OutputEvent,
    PhaseEvent,
    RecordEvent,
    RolloutRecord,
    RolloutsEndedEvent,
    UnreachableEvent,
)
from runner.redaction import Redactor
from runner.sandbox.data import can_overlay
from runner.sandbox.machine import this_machine
from runner.sandbox.policy import Credentials, SandboxPolicy
from runner.shipment import ship
from runner.variables import SecretVariables


class IsolatedEnvironment(Account):
    """An environment that runs in worker processes. Made by `isolate`.

    Use it as an async context manager, or call `start` and `aclose`. It belongs to the event loop that started it.
    """

    def __init__(
        self,
        artifact: Artifact,
        *,
        auth: Mapping[str, AuthValue] | None,
        policy: SandboxPolicy,
        reach: Reach,
        secrets: SecretVariables,
        credentials: Credentials,
        exchange: Exchange | None,
        workers: int,
        data: Path | None,
        limits: Limits,
        python: str | None,
        cache: Cache,
        provisioning: ProvisionOptions,
        on_event: OnEvent | None,
        hash_seed: str = HASH_SEED,
    ) -> None:
        self._artifact = artifact
        self._redactor = Redactor()
        self._broker = Broker(auth, self._redactor)
        self._policy = policy
        self._reach = reach
        self._secrets = secrets
        for value in secrets.values():
            self._redactor.learn_for_good(value)
        self._traffic = Traffic(
            lambda endpoint, reason: self._emit(UnreachableEvent(endpoint=str(endpoint), reason=reason))
        )
        self._limits = limits
        self._gateway: Intermediary | None = None
        if credentials == "gateway":
            self._gateway = Intermediary(
                self._broker,
                self._redactor,
                limits,
                self._traffic,
                place=GATEWAY if policy.network == "model-only" else None,
                intercepted=reach.intercepted,
                exchange=exchange,
            )
        self._python = python
        self._hash_seed = hash_seed
        self._cache = cache
        self._provisioning = provisioning
        self._on_event = on_event
        self._workers = workers
        self._data = data
        self._overlaid: Path | None = None
        self._pool: Pool | None = None
        self._starting: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._venv: Venv | None = None
        self._compilation: Compilation | None = None
        self._ready = False
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
        if not self._starting.done():
            await asyncio.wait([self._starting])
        if self._starting.cancelled():
            raise WorkerLostError("the environment was closed while it started.")
        self._starting.result()
        self._ready = True

    async def _start(self) -> None:
        metadata = self._artifact.bundle.metadata
        self._venv = await provision(
            metadata,
            python=self._python,
            cache=self._cache,
            options=self._provisioning,
            limits=self._limits,
            on_event=lambda event: self._phase(event.phase, event.message),
        )
        self._compilation = Compilation(self._venv, self._limits, self._phase)
        if self._data is not None and self._policy.level == "namespaces":
            found = await asyncio.to_thread(_resolved, self._data)
            if await asyncio.to_thread(can_overlay, found, this_machine()):
                self._overlaid = found
        gateway = self._gateway
        if gateway is not None:
            await gateway.start()
        launch = Launch(
            python=self._venv.python,
            prefix=self._venv.base_prefix,
            boot=await asyncio.to_thread(ship, self._cache.root / "worker"),
            readable=what_it_reads(self._venv, self._policy, certificates=gateway is None or gateway.trusted is None),
            pickled=self._artifact.bundle.pickled,
            metadata=metadata,
            policy=self._policy,
            limits=self._limits,
            data=self._overlaid,
            secrets=self._secrets,
            routes={**relays(self._policy.endpoints, self._traffic), **({} if gateway is None else gateway.routes)},
            trusted=None if gateway is None else gateway.trusted,
            direct=None if gateway is None else gateway.direct,
            hash_seed=self._hash_seed,
        )
        self._phase("start", f"starting {self._workers} worker{'s' if self._workers > 1 else ''}")
        listeners = Listeners(
            output=lambda line: self._emit(OutputEvent(line=line)),
            ended=lambda rollout_ids: self._emit(RolloutsEndedEvent(rollout_ids=rollout_ids)),
            worker=self._emit,
            loaded=self._compilation.add,
            stalled=self._emit,
        )
        self._pool = Pool(launch, self._workers, self._broker, self._redactor, listeners)
        await self._pool.start()
        self._compilation.add_folder(launch.boot.parents[1])
        if gateway is not None and self.requires_public_model_endpoint:
            raise UsageError(
                f"{self.environment_name} needs a model endpoint that can be reached from elsewhere, "
                "and the gateway can be reached by its workers alone.",
                hint="Use credentials='headers' (command line: --credentials headers).",
            )
        self._phase("ready", f"{self.environment_name} is constructed")

    async def aclose(self) -> None:
        """Close the environment in its workers and end them. Safe to call twice; always ends.

        Where the event loop that it was started in is closed, its workers end without the environment's own `aclose`.

        Raises:
            RemoteError: the environment's own `aclose` raised. The workers are gone all the same.
            WorkerLostError: a worker ended, or was killed for taking too long, before that had ended.
            RunnerError: it was started in another event loop, which is still there.
        """
        if self._loop is not None and self._loop is not asyncio.get_running_loop():
            if not self._loop.is_closed():
                raise _other_loop()
            self._closed = True
            if self._pool is not None:
                await asyncio.to_thread(self._pool.abandon)
            self._release()
            return
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
            if self._gateway is not None:
                await self._gateway.aclose()
            if self._compilation is not None:
                await self._compilation.finish()
            self._release()

    def _release(self) -> None:
        if self._venv is not None and self._venv.lease is not None:
            self._venv.lease.release()

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
        base_dir = await asyncio.to_thread(_resolved, base_dir)
        pool = self._running()
        if self._gateway is not None:
            scope = self._gateway.scope(scope, f"create_dataset({split!r})")
        number, ids = await pool.create_dataset(split, base_dir, max_examples, scope)
        token = DatasetToken(self, number, pool.forget_soon)
        return Dataset([Example(example_id, ExampleHandle(token, i)) for i, example_id in enumerate(ids)])

    async def run_group(self, requests: Iterable[RolloutRequest[ExampleHandle]]) -> Mapping[str, RolloutOutcome]:
        """Run one group in a worker.

        Raises:
            ValueError: the requests do not form a group, an example is not from this environment's dataset, or the
                worker could not reach a request's model.
            RemoteError: `run_group` raised in the worker.
            RestartsUsedUpError: workers ended one after the other, more often than `Limits.restarts` allows.
            RemoteError, WorkerStartError: a worker that was to replace one did not become ready.
        """
        frozen = freeze_requests(requests)
        _, outcomes = await self._run(frozen, single=False)
        return outcomes

    async def run_rollout(self, request: RolloutRequest[ExampleHandle]) -> RolloutAttempt:
        """Run one rollout in a worker, without group scoring; the four base fields of its attempt come back.

        Raises:
            ValueError: the example is not from this environment's dataset, or the worker could not reach the model.
            RemoteError: `run_rollout` raised in the worker.
            WorkerLostError: no worker could be started any more.
        """
        attempt, outcomes = await self._run((request,), single=True)
        if attempt is not None:
            return attempt
        outcome = outcomes[request.rollout_id]
        reason, error = outcome.termination_reason, outcome.error
        return RolloutAttempt(
            rollout_id=request.rollout_id, termination_reason=reason, rewards=outcome.rewards, error=error
        )

    async def compute_group_rewards(self, rollouts: Sequence[RolloutAttempt]) -> Mapping[str, RewardMap] | None:
        """Not available from here: groups are scored in the worker, with attempts that never leave it.

        Raises:
            UsageError: always; use `run_group`.
        """
        raise UsageError("compute_group_rewards cannot be called across processes.", hint="Use run_group.")

    async def _run(
        self, requests: Sequence[RolloutRequest[Any]], *, single: bool
    ) -> tuple[RolloutAttempt | None, Mapping[str, RolloutOutcome]]:
        check_examples(requests, self)
        # siblings ask at one place, mostly
        for base_url in {request.base_url for request in requests}:
            self._reach.check(base_url)
        # captured before the first wait: the caller's bindings are those of now
        scope = self._broker.scope(requests)
        if self._ready:
            self._check_usable()
        else:
            await self.start()
        # records are made only if somebody wants them
        on_record = None if self._on_event is None else self._on_record
        pool = self._running()
        if self._gateway is None:
            return await pool.run(requests, scope, single=single, on_record=on_record)
        async with self._gateway.rollouts(scope, on_record) as (lent, keep):
            return await pool.run([*lent.requests.values()], lent, single=single, on_record=keep)

    def _on_record(self, record: RolloutRecord) -> None:
        self._emit(RecordEvent(record=record))

    # -- events -------------------------------------------------------------------------------------------

    def _check_usable(self) -> None:
        if self._closed:
            raise RunnerError("the environment is closed.", hint="Make a new one with isolate().")
        if self._loop is not None and self._loop is not asyncio.get_running_loop():
            raise _other_loop()

    def _phase(self, phase: str, message: str) -> None:
        self._emit(PhaseEvent(phase=phase, message=message, elapsed_s=time.monotonic() - self._began))

    def _emit(self, event: Event) -> None:
        if self._on_event is None:
            return
        try:
            self._on_event(event)
        except Exception as error:  # noqa: BLE001 - most events come from a worker's channel, which it would break
            asyncio.get_running_loop().call_exception_handler({"message": "on_event raised", "exception": error})


def _resolved(path: Path) -> Path:
    return Path(path).expanduser().resolve()


def _other_loop() -> RunnerError:
    return RunnerError("the environment belongs to another event loop.", hint="Use and close it where it was started.")
