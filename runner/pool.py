"""The workers of one isolated environment: which of them takes a call, and what replaces one that ended.

Comes in: a `Launch` and the calls. Goes out: live workers that have the datasets a call needs. Refuses: to replace
workers for ever, and to go on with a dataset that a fresh worker makes differently.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmax.envs.shared_types import DatasetSplit
from runner.broker import Broker, CallScope
from runner.child import Child, Launch
from runner.errors import DatasetError, RunnerError, WorkerLostError
from runner.protocol import Ready
from runner.record import LogLine, WorkerEvent
from runner.redaction import Redactor

MAX_PAST: Final = 3
"""Replaced workers whose output is kept."""


@dataclass(frozen=True, slots=True)
class DatasetSpec:
    """How a dataset was made, so that a fresh worker can make it again."""

    split: DatasetSplit
    base_dir: Path
    max_examples: int | None
    ids: tuple[str, ...]


class Slot:
    """The place of one worker: the live one, if any, and the datasets it already has.

    As a context manager it holds the slot while a call is prepared; the wait for it counts as load.
    """

    def __init__(self) -> None:
        self.child: Child | None = None
        self.datasets: dict[int, int] = {}
        self._lock = asyncio.Lock()
        self._waiting = 0

    @property
    def load(self) -> int:
        """Rollouts in flight, and calls that wait for the slot."""
        return self._waiting + (self.child.load if self.child is not None else 0)

    async def __aenter__(self) -> Slot:
        self._waiting += 1
        try:
            await self._lock.acquire()
        finally:
            self._waiting -= 1
        return self

    async def __aexit__(self, *_: object) -> None:
        self._lock.release()


@dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """What the pool tells its owner.

    Args:
        output: Something was logged or printed outside of rollouts.
        ended: Rollouts have run.
        worker: A worker became ready or ended.
        loaded: A worker says which modules it loaded from source.
    """

    output: Callable[[LogLine], None]
    ended: Callable[[tuple[str, ...]], None]
    worker: Callable[[WorkerEvent], None]
    loaded: Callable[[list[str]], None]


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
        self._launch = launch
        self._broker = broker
        self._redactor = redactor
        self._listeners = listeners
        self._slots = [Slot() for _ in range(size)]
        self.datasets: dict[int, DatasetSpec] = {}
        self.ready: Ready | None = None
        """What the environment said about itself; the same in every worker."""
        self._closed = False
        self._failures = 0
        """Workers that ended or did not start, since the last group that came back whole."""
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
        """
        self._closed = True
        for starting in [*self._starting]:
            starting.cancel()
        if self._starting:
            await asyncio.wait(self._starting)
        results = await asyncio.gather(*(child.close() for child in self.children), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    def slot(self) -> Slot:
        """Return the slot with the least to do."""
        return min(self._slots, key=lambda slot: slot.load)

    async def child(self, slot: Slot) -> Child:
        """Return a held slot's live worker; start a fresh one for a dead one, as often as the limit says.

        Raises:
            WorkerLostError: the restarts are used up, or the environment was closed meanwhile.
            RemoteError, WorkerStartError: the fresh one did not become ready.
        """
        child = slot.child
        if child is not None and child.alive:
            return child
        if child is not None:
            await child.end()
            self.past = [*self.past, child][-MAX_PAST:]
            slot.child = None
        if self._closed:
            raise WorkerLostError("the environment was closed.")
        restarts = self._launch.limits.restarts
        if self._failures > restarts:
            history = "; ".join(self.deaths[-3:])
            raise WorkerLostError(
                f"{self._failures} workers ended one after the other, the {restarts} restarts are used up: {history}",
                hint="A worker that ends every time will not get better by itself.",
            )
        return await self._fill(slot)

    def worked(self) -> None:
        """Note that a group came back whole: what failed before it does not count against the restarts any more."""
        self._failures = 0

    async def create_dataset(
        self, split: DatasetSplit, base_dir: Path, max_examples: int | None, scope: CallScope
    ) -> tuple[int, tuple[str, ...]]:
        """Create a dataset in one worker; return its number and the ids of its examples."""
        async with self.slot() as slot:
            child = await self.child(slot)
            remote, ids = await child.conversation.create_dataset(split, base_dir, max_examples, scope)
            number = len(self.datasets)
            self.datasets[number] = DatasetSpec(split, base_dir, max_examples, tuple(ids))
            slot.datasets[number] = remote
        return number, tuple(ids)

    async def ensure_dataset(self, slot: Slot, child: Child, number: int, scope: CallScope) -> int:
        """Return a dataset's number in the held slot's worker, where it is made again if need be.

        Raises:
            DatasetError: it is not the same there.
        """
        if number not in slot.datasets:
            spec = self.datasets[number]
            remote, ids = await child.conversation.create_dataset(spec.split, spec.base_dir, spec.max_examples, scope)
            if tuple(ids) != spec.ids:
                raise DatasetError(
                    f"create_dataset({spec.split!r}) gave other examples in a fresh worker than before "
                    f"({len(ids)} now, {len(spec.ids)} then, or with other ids).",
                    hint="A dataset must be the same every time: seed what is random, and sort what the disk lists.",
                )
            slot.datasets[number] = remote
        return slot.datasets[number]

    async def _fill(self, slot: Slot) -> Child:
        starting = asyncio.ensure_future(self._start_child())
        self._starting.add(starting)
        try:
            child = await starting
        except asyncio.CancelledError:
            if self._closed:
                raise WorkerLostError("the environment was closed.") from None
            starting.cancel()
            await asyncio.wait([starting])
            raise
        except RunnerError as error:
            self._failures += 1
            self.deaths.append(error.message)
            raise
        finally:
            self._starting.discard(starting)
        slot.datasets = {}
        slot.child = child
        self.ready = child.ready
        self._listeners.worker(WorkerEvent(state="ready", pid=child.pid, message=f"worker {child.pid} is ready"))
        return child

    async def _start_child(self) -> Child:
        return await Child.start(
            self._launch,
            self._broker,
            self._redactor,
            on_output=self._listeners.output,
            on_ended=self._listeners.ended,
            on_death=self._on_death,
            on_loaded=self._listeners.loaded,
        )

    def _on_death(self, child: Child) -> None:
        self._failures += 1
        self.deaths.append(child.death or "The worker ended.")
        self._listeners.worker(WorkerEvent(state="ended", pid=child.pid, message=self.deaths[-1]))
