"""The workers of one isolated environment: which of them takes a call, and what replaces one that ended.

Comes in: a `Launch` and the calls. Goes out: their results, from live workers that have the datasets a call needs.
Refuses: to replace workers for ever, and to go on with a dataset that a fresh worker makes differently.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmax.envs.shared_types import DatasetSplit, RolloutAttempt, RolloutOutcome, RolloutRequest
from runner.broker import Broker, CallScope
from runner.child import Child
from runner.conversation import Position
from runner.errors import DatasetError, RemoteError, RestartsUsedUpError, RunnerError, WorkerEnd, WorkerLostError
from runner.handle import ExampleHandle
from runner.launch import Launch
from runner.protocol import CANCELLED, SANDBOX_ERROR, Ready
from runner.record import LogLine, RolloutRecord, StallEvent, Watcher, WorkerEvent
from runner.redaction import Redactor
from runner.rollout_call import RolloutCall

MAX_PAST: Final = 3
"""Replaced workers whose output is kept."""


@dataclass(frozen=True, slots=True)
class DatasetSpec:
    """How a dataset was made, so that a fresh worker can make it again."""

    split: DatasetSplit
    base_dir: Path
    max_examples: int | None
    scope: CallScope
    ids: tuple[str, ...]


class Slot:
    """The place of one worker: the live one, if any, and the datasets it already has."""

    def __init__(self) -> None:
        self.child: Child | None = None
        self.datasets: dict[int, int] = {}
        self._lock = asyncio.Lock()
        self._preparing = 0

    @property
    def load(self) -> int:
        """Rollouts in flight, or waiting for the slot."""
        return self._preparing + (self.child.load if self.child is not None else 0)

    @property
    def doubtful(self) -> bool:
        """Whether its worker may have to be killed in a moment."""
        return self.child is not None and self.child.conversation.doubtful

    def ready(self, datasets: Iterable[int]) -> bool:
        """Whether its worker can be given a call that needs these datasets at once, without holding the slot."""
        child = self.child
        if child is None or not child.alive or child.full or self.doubtful:
            return False
        return all(number in self.datasets for number in datasets)

    @contextlib.asynccontextmanager
    async def held(self, rollouts: int) -> AsyncIterator[None]:
        """Hold the slot while a call is prepared; from the wait for it on, its rollouts count as load."""
        self._preparing += rollouts
        try:
            async with self._lock:
                yield
        finally:
            self._preparing -= rollouts


@dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """What the pool tells its owner.

    Args:
        output: Something was logged or printed outside of rollouts.
        ended: Rollouts have run.
        worker: A worker became ready or ended.
        loaded: A worker says which modules it loaded from source.
        stalled: A worker's event loop does not turn, or does again.
    """

    output: Callable[[LogLine], None]
    ended: Callable[[tuple[str, ...]], None]
    worker: Callable[[WorkerEvent], None]
    loaded: Callable[[list[str]], None]
    stalled: Callable[[StallEvent], None]


class Pool:
    """A fixed number of slots with workers of one launch.

    Args:
        launch: What each worker is made of.
        size: Number of slots.
        broker: Answers the workers' header requests.
        redactor: Cleans every text they send.
        listeners: Told what happens.
    """

    def __init__(self, launch: Launch, size: int, broker: Broker, redactor: Redactor, listeners: Listeners) -> None:
        self._loop = asyncio.get_running_loop()
        self._launch = launch
        self._broker = broker
        self._redactor = redactor
        self._listeners = listeners
        self._watcher = Watcher(
            output=listeners.output,
            ended=listeners.ended,
            death=self._on_death,
            loaded=listeners.loaded,
            stalled=listeners.stalled,
        )
        self._slots = [Slot() for _ in range(size)]
        self._numbers = itertools.count()
        self.datasets: dict[int, DatasetSpec] = {}
        """The datasets that some example in this process is of."""
        self.ready: Ready | None = None
        """What the environment said about itself; the same in every worker."""
        self._closed = False
        self._failures: list[WorkerEnd] = []
        """Workers that ended or did not start, since the last group that came back."""
        self._starting: set[asyncio.Task[Child]] = set()
        self.past: list[Child] = []
        """The last few workers that were replaced, for what they had printed."""
        self.deaths: list[str] = []
        """How workers ended that were not asked to, in order."""

    @property
    def children(self) -> list[Child]:
        """Workers that are in a slot, dead or alive."""
        return [slot.child for slot in self._slots if slot.child is not None]

    async def start(self) -> None:
        """Start a worker in every slot.

        Raises:
            RemoteError, WorkerStartError: one of them did not become ready.
        """
        try:
            async with asyncio.TaskGroup() as group:
                for slot in self._slots:
                    group.create_task(self._fill(slot))
        except BaseExceptionGroup as failed:
            # the workers are alike, so the first failure speaks for all
            raise failed.exceptions[0] from None

    async def close(self) -> None:
        """Close the environment in every worker and end them, also one that is just being started.

        Raises:
            RemoteError: the environment's `aclose` raised; the workers are gone all the same.
            WorkerLostError: a worker ended, or the limit of time passed, before its `aclose` had ended.
        """
        self._closed = True
        begun = [*self._starting]
        for starting in begun:
            starting.cancel()
        if begun:
            await asyncio.wait(begun)
        # one that had just become ready is in no slot yet, and will not come into one
        ready = [starting.result() for starting in begun if not starting.cancelled() and not starting.exception()]
        children = {*self.children, *ready}
        results = await asyncio.gather(*(child.close() for child in children), return_exceptions=True)
        await self._broker.aclose()
        for result in results:
            if isinstance(result, BaseException):
                raise result

    def output(self) -> dict[str, str]:
        """Return what the workers wrote to their standard streams outside of rollouts, bounded; dead ones first."""
        children = [*self.past, *self.children]
        return {
            "stdout": self._redactor.clean("".join(child.stdout.text() for child in children)),
            "stderr": self._redactor.clean("".join(child.stderr.text() for child in children)),
        }

    def abandon(self) -> None:
        """End the workers without an event loop, when the one that they belong to is closed; blocks meanwhile."""
        self._closed = True
        for child in self.children:
            child.abandon()

    # -- calls --------------------------------------------------------------------------------------------

    async def run(
        self,
        requests: Sequence[RolloutRequest[ExampleHandle]],
        scope: CallScope,
        *,
        single: bool,
        on_record: Callable[[RolloutRecord], None] | None = None,
    ) -> tuple[RolloutAttempt | None, Mapping[str, RolloutOutcome]]:
        """Run the rollouts of one group (or, `single`, one without group scoring) in the worker with the least to do.

        Args:
            requests: The rollouts.
            scope: What they may ask headers for.
            single: Whether it is one without group scoring.
            on_record: Called with a record of each, in request order; without it none is made.

        Returns:
            The attempt of a single rollout, if it came to one; and the outcome of each, in request order.

        Raises:
            RemoteError: the environment raised.
            DatasetError: a fresh worker makes another dataset than the one the examples are of.
            WorkerLostError: no worker could be started any more, or the environment was closed meanwhile.
        """
        slot = self._least_loaded()
        handles = [request.example.payload for request in requests]
        # siblings share one, mostly
        numbers = {handle.dataset for handle in {*handles}}
        child = slot.child
        if child is None or self._closed or not slot.ready(numbers):
            async with slot.held(len(requests)):
                child = await self._child(slot)
                try:
                    await self._prepare(slot, child, numbers)
                    call = self._begin(slot, child, requests, handles, scope, single=single)
                except (WorkerLostError, RemoteError) as error:
                    if isinstance(error, RemoteError) and not self._closed:
                        raise
                    return None, self._lost(requests, error, on_record)
        else:
            call = self._begin(slot, child, requests, handles, scope, single=single)
        outcomes = await child.conversation.finish(call)
        if call.worked:
            # what failed before does not count against the restarts any more
            self._failures.clear()
        if on_record is not None:
            for record in call.records():
                on_record(record)
        return call.attempt, outcomes

    async def _prepare(self, slot: Slot, child: Child, numbers: Iterable[int]) -> None:
        for number in numbers:
            await self._ensure_dataset(slot, child, number)
        while child.full:
            await child.drained()

    def _begin(
        self,
        slot: Slot,
        child: Child,
        requests: Sequence[RolloutRequest[ExampleHandle]],
        handles: Sequence[ExampleHandle],
        scope: CallScope,
        *,
        single: bool,
    ) -> RolloutCall:
        position = {
            handle: Position(slot.datasets[handle.dataset], handle.position) for handle in dict.fromkeys(handles)
        }
        positions = [position[handle] for handle in handles]
        return child.conversation.begin(requests, positions, scope, single=single)

    def _lost(
        self,
        requests: Sequence[RolloutRequest[ExampleHandle]],
        error: RunnerError,
        on_record: Callable[[RolloutRecord], None] | None,
    ) -> dict[str, RolloutOutcome]:
        """Settle rollouts whose worker ended before they could be sent to it."""
        reason, text = (CANCELLED, "The environment was closed.") if self._closed else (SANDBOX_ERROR, error.message)
        outcomes = {request.rollout_id: RolloutOutcome({}, reason, text) for request in requests}
        if on_record is not None:
            for request in requests:
                record = RolloutRecord(
                    rollout_id=request.rollout_id,
                    example_id=request.example.id,
                    outcome=outcomes[request.rollout_id],
                    origin="runner",
                    stack=error.detail,
                )
                on_record(record)
        return outcomes

    async def create_dataset(
        self, split: DatasetSplit, base_dir: Path, max_examples: int | None, scope: CallScope
    ) -> tuple[int, tuple[str, ...]]:
        """Create a dataset in one worker; return its number and the ids of its examples.

        Raises:
            RemoteError: the environment raised.
            WorkerLostError: the worker ended, the limit of time passed, or no worker could be started any more.
        """
        slot = self._least_loaded()
        async with slot.held(1):
            child = await self._child(slot)
            remote, ids = await child.conversation.create_dataset(
                split, await asyncio.to_thread(child.data, base_dir), max_examples, scope
            )
            number = next(self._numbers)
            self.datasets[number] = DatasetSpec(split, base_dir, max_examples, scope, tuple(ids))
            slot.datasets[number] = remote
        return number, tuple(ids)

    def forget_soon(self, number: int) -> None:
        """Drop a dataset that no example is of any more, here and in the workers; callable from any thread."""
        # a loop that is closed means that the workers are gone, too
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._forget, number)

    def _forget(self, number: int) -> None:
        self.datasets.pop(number, None)
        for slot in self._slots:
            remote = slot.datasets.pop(number, None)
            if remote is not None and slot.child is not None:
                slot.child.conversation.forget(remote)

    async def _ensure_dataset(self, slot: Slot, child: Child, number: int) -> None:
        """Make a dataset again in the held slot's worker, if need be."""
        if number not in slot.datasets:
            spec = self.datasets[number]
            # with what it was made with: it is not for the rollouts that need it now to change it
            remote, ids = await child.conversation.create_dataset(
                spec.split, await asyncio.to_thread(child.data, spec.base_dir), spec.max_examples, spec.scope
            )
            if tuple(ids) != spec.ids:
                child.conversation.forget(remote)
                raise DatasetError(
                    f"create_dataset({spec.split!r}) gave other examples in a fresh worker than before "
                    f"({len(ids)} now, {len(spec.ids)} then, or with other ids).",
                    hint="A dataset must be the same every time: seed what is random, and sort what the disk lists.",
                )
            slot.datasets[number] = remote

    # -- workers ------------------------------------------------------------------------------------------

    def _least_loaded(self) -> Slot:
        if len(self._slots) == 1:
            return self._slots[0]
        return min(self._slots, key=lambda slot: (slot.doubtful, slot.load))

    async def _child(self, slot: Slot) -> Child:
        """Return a held slot's live worker; start a fresh one for a dead one, as often as the limit says.

        Raises:
            RestartsUsedUpError: the restarts are used up.
            WorkerLostError: the environment was closed meanwhile.
            RemoteError, WorkerStartError: the fresh one did not become ready.
        """
        child = slot.child
        if child is not None:
            # one that may be killed in a moment is given nothing new to take along
            await child.conversation.settled()
        self._check_open()
        if child is not None and child.alive:
            return child
        if child is not None:
            await child.end()
            self.past = [*self.past, child][-MAX_PAST:]
            slot.child = None
        failed, restarts = len(self._failures), self._launch.limits.restarts
        if failed > restarts:
            raise RestartsUsedUpError(
                f"{failed} workers ended one after the other, the {restarts} restarts are used up: "
                f"{'; '.join(end.text for end in self._failures[-3:])}",
                history=self._failures,
                hint="A worker that ends every time will not get better by itself.",
            )
        return await self._fill(slot)

    def _check_open(self) -> None:
        if self._closed:
            raise WorkerLostError("the environment was closed.")

    async def _fill(self, slot: Slot) -> Child:
        # whatever was waited for before, closing has not waited for what begins only now
        self._check_open()
        starting = asyncio.ensure_future(Child.start(self._launch, self._broker, self._redactor, self._watcher))
        self._starting.add(starting)
        try:
            child = await starting
        except asyncio.CancelledError:
            if self._closed:
                raise WorkerLostError("the environment was closed.") from None
            starting.cancel()
            await asyncio.wait([starting])
            if not starting.cancelled() and not starting.exception():
                # it became ready at that very moment: the next call has it
                self._place(slot, starting.result())
            raise
        finally:
            self._starting.discard(starting)
        self._check_open()
        self._place(slot, child)
        return child

    def _place(self, slot: Slot, child: Child) -> None:
        slot.datasets = {}
        slot.child = child
        self.ready = child.ready
        self._listeners.worker(WorkerEvent(state="ready", pid=child.pid, message=f"worker {child.pid} is ready"))

    def _on_death(self, end: WorkerEnd) -> None:
        self._failures.append(end)
        self.deaths.append(end.text)
        if end.ready:
            self._listeners.worker(WorkerEvent(state="ended", pid=end.pid, message=end.text))
