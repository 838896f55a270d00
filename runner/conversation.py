"""The calls of one worker: sending them, what the worker says of them, and their deadlines.

Comes in: calls, and the worker's messages about calls. Goes out: results. Refuses, as `FrameError`, messages about
calls that are not in flight or that do not fit the call.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from benchmax.envs.shared_types import DatasetSplit, RolloutOutcome, RolloutRequest
from runner.broker import CallScope
from runner.calls import Call, DatasetCall, Death
from runner.deadlines import Deadlines
from runner.errors import FrameError, WorkerLostError
from runner.holding import Holding
from runner.limits import Limits
from runner.log_shelf import gap_line, log_line, most_output
from runner.protocol import (
    CANCELLED,
    GROUP_TIMEOUT,
    ROLLOUT_TIMEOUT,
    START_CALL,
    CallDone,
    CallFailed,
    Cancel,
    CreateDataset,
    DatasetPart,
    Expire,
    Forget,
    GroupDone,
    Log,
    Outcome,
    RolloutsEnded,
    RolloutSpec,
    RunGroup,
    RunRollout,
    Snapshot,
    ToWorker,
    Transcript,
)
from runner.record import LogLine
from runner.redaction import Redactor
from runner.rollout_call import RolloutCall
from runner.spinning import Spin
from runner.text import printable

T = TypeVar("T")

CallMessage = Outcome | GroupDone | RolloutsEnded | Transcript | Log | CallDone | CallFailed | DatasetPart | Snapshot


class Position(NamedTuple):
    """Where an example is: the worker's number of its dataset, and its place in it."""

    dataset: int
    example: int


class Conversation:
    """Everything in flight between the caller and one worker.

    Args:
        send: Queues a message to the worker.
        look: Finds out where a call is, which takes a moment, and then does the next thing; that is told where the
            worker is, as a sentence with a space before it, or nothing.
        kill: Ends the worker; called for a call that was asked to stop and did not.
        limits: Deadlines and sizes.
        redactor: Cleans every text the worker sends.
        on_output: Called with what was logged or printed outside of rollouts.
        on_ended: Called with the ids of rollouts that have run.
    """

    def __init__(
        self,
        send: Callable[[ToWorker], None],
        look: Callable[[int, Callable[[str], None]], None],
        kill: Callable[[], None],
        limits: Limits,
        redactor: Redactor,
        on_output: Callable[[LogLine], None],
        on_ended: Callable[[tuple[str, ...]], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._transmit = send
        self._look = look
        self._kill = kill
        self._limits = limits
        self._redactor = redactor
        self._on_output = on_output
        self._on_ended = on_ended
        self._calls: dict[int, Call[Any]] = {}
        self._scopes: dict[int, CallScope] = {}
        self._last = START_CALL
        self._rollouts_in_flight = 0
        self._dataset_time = Deadlines(limits.dataset_s, self._on_dataset_deadline)
        self._rollout_time = Deadlines(limits.rollout_s, self._on_rollout_deadline)
        self._scoring_time = Deadlines(limits.scoring_s, self._on_scoring_deadline)
        self._grace = Deadlines(limits.cancel_grace_s, self._kill_for)
        self._deadlines: tuple[Deadlines[Any], ...] = (
            self._dataset_time,
            self._rollout_time,
            self._scoring_time,
            self._grace,
        )
        self._spin = Spin()
        self._holding = Holding(limits.in_flight_bytes)
        self._outside_cost = 0
        self._stopping: set[int] = set()
        self._settled = asyncio.Event()
        self._settled.set()
        self.killed_for: int | None = None
        """The call for whose sake the worker was killed, if it was."""
        self.on_fewer: Callable[[], None] = _nobody
        """Called when `in_progress` or `runs` may have become false of some rollout."""

    @property
    def load(self) -> int:
        """Rollouts in flight."""
        return self._rollouts_in_flight

    @property
    def scopes(self) -> Mapping[int, CallScope]:
        """What each call in flight may ask headers for."""
        return self._scopes

    @property
    def doubtful(self) -> bool:
        """Whether some call was asked to stop and has not yet, so that the worker may have to be killed."""
        return bool(self._stopping)

    async def settled(self) -> None:
        """Wait until no call is being stopped: each has stopped, or the worker is dead."""
        await self._settled.wait()

    def in_flight(self, call: int | None, rollouts: Iterable[str]) -> tuple[str, ...]:
        """Return those of the rollouts that belong to a call; none if it has ended meanwhile."""
        found = None if call is None else self._calls.get(call)
        return tuple(name for name in rollouts if name in found.requests) if isinstance(found, RolloutCall) else ()

    def in_progress(self, call: int | None, rollout_id: str) -> bool:
        """Whether a rollout of a call is in flight, and has not run to its end."""
        found = None if call is None else self._calls.get(call)
        return isinstance(found, RolloutCall) and found.is_late(rollout_id)

    def runs(self, call: int, rollout_id: str) -> bool:
        """Whether a rollout of a call is in progress, and was not told to stop."""
        found = self._calls.get(call)
        told = call in self._stopping or (isinstance(found, RolloutCall) and found.expired is not None)
        return not told and self.in_progress(call, rollout_id)

    def open_scope(self, scope: CallScope) -> None:
        """Let the construction of the environment ask for headers."""
        self._scopes[START_CALL] = scope
        scope.enter()

    def close_scope(self) -> None:
        """End what `open_scope` began."""
        self._close_scope(START_CALL)

    def closing(self) -> None:
        """The caller closes the environment: what is still in flight ends as cancelled, however it ends."""
        for number in [*self._scopes]:
            self._close_scope(number)
        for call in self._calls.values():
            if isinstance(call, RolloutCall):
                call.stop_timer()
                call.expired = CANCELLED
        self.on_fewer()

    def died(self, death: Death) -> None:
        """The worker is gone: settle everything that is open."""
        for call in [*self._calls.values()]:
            call.died(death, WorkerLostError(f"{call.what}: {death.text}", detail=death.stack))
            self._forget(call)
        for deadlines in self._deadlines:
            deadlines.close()

    def on_message(self, message: CallMessage) -> None:
        """Take in what the worker says of a call.

        Raises:
            FrameError: no honest worker says that.
        """
        match message:
            case GroupDone():
                group = self._rollouts(message.call)
                ended = group.group_done(message)
                self._forget(group)
                if ended:
                    self._on_ended(ended)
            case Outcome():
                self._rollouts(message.call).outcome(message)
            case RolloutsEnded():
                self._on_rollouts_ended(self._rollouts(message.call), message)
            case Transcript():
                self._rollouts(message.call).transcript(message)
            case Log():
                self._log(message)
            case Snapshot():
                self._on_snapshot(message)
            case CallDone():
                call = self._call(message.call)
                call.done()
                self._forget(call)
            case CallFailed():
                call = self._call(message.call)
                call.failed(message.failure, self._redactor)
                self._forget(call)
            case DatasetPart():
                dataset = self._call(message.call)
                if not isinstance(dataset, DatasetCall):
                    raise FrameError("example ids for a call that is no create_dataset")
                dataset.part(message)

    async def create_dataset(
        self, split: DatasetSplit, base_dir: Path, max_examples: int | None, scope: CallScope
    ) -> tuple[int, list[str]]:
        """Create a dataset in the worker; return its number there and the ids of its examples.

        Raises:
            RemoteError: the environment raised.
            WorkerLostError: the worker ended, or the call took longer than its limit.
        """
        call = DatasetCall(self._number(), scope, f"create_dataset({split!r})", self._limits)
        message = CreateDataset(
            call=call.number, split=split, base_dir=str(base_dir), max_examples=max_examples, bindings=scope.names()
        )
        self._send(call, message)
        call.start_timer(self._dataset_time)
        try:
            return call.number, await self._result(call)
        except BaseException:
            # it may have been made all the same, and nobody will ever name it
            self.forget(call.number)
            raise

    def forget(self, dataset: int) -> None:
        """Let the worker drop a dataset that no call will name any more."""
        with contextlib.suppress(WorkerLostError):
            self._transmit(Forget(dataset=dataset))

    def begin(
        self,
        requests: Sequence[RolloutRequest[Any]],
        positions: Sequence[Position],
        scope: CallScope,
        *,
        single: bool = False,
    ) -> RolloutCall:
        """Send rollouts of one group (or, `single`, one without group scoring); wait for them with `finish`.

        Raises:
            FrameError: the requests do not fit a message; nothing was sent.
        """
        what = f"rollout {requests[0].rollout_id!r}" if single else f"group {requests[0].rollout_id!r}"
        call = RolloutCall(
            self._number(), scope, what, requests, self._limits, self._redactor, self._holding, single=single
        )
        specs = [
            RolloutSpec(
                rollout_id=request.rollout_id,
                dataset=position.dataset,
                position=position.example,
                model=request.model,
                base_url=request.base_url,
            )
            for request, position in zip(requests, positions, strict=True)
        ]
        split, names = requests[0].split, scope.names()
        message = (
            RunRollout(call=call.number, split=split, rollout=specs[0], bindings=names)
            if single
            else RunGroup(call=call.number, split=split, rollouts=specs, bindings=names)
        )
        self._send(call, message)
        call.start_timer(self._rollout_time)
        return call

    def finish(self, call: RolloutCall) -> Awaitable[Mapping[str, RolloutOutcome]]:
        """Wait for rollouts that were begun; return the outcome of each, in request order.

        Raises:
            RemoteError: `run_group` or `run_rollout` raised.
        """
        return self._result(call)

    def _number(self) -> int:
        self._last += 1
        return self._last

    def _send(self, call: Call[Any], message: CreateDataset | RunGroup | RunRollout) -> None:
        self._transmit(message)
        self._calls[call.number] = call
        self._scopes[call.number] = call.scope
        call.scope.enter()
        self._rollouts_in_flight += call.rollouts
        if len(self._calls) == 1:
            self._spin.begin()
        else:
            self._spin.end()

    async def _result(self, call: Call[T]) -> T:
        try:
            return await call.future
        except asyncio.CancelledError:
            if not call.over:
                # the one that was waited for was cancelled with its waiter
                call.future = self._loop.create_future()
                await self._abandon(call)
            raise

    async def _abandon(self, call: Call[Any]) -> None:
        """The caller was cancelled: cancel in the worker too, and wait until the call has ended there."""
        self._stop(call, Cancel(call=call.number))
        with contextlib.suppress(Exception):
            # a second cancellation must not leave the call running unseen; the grace above bounds the wait
            while not call.future.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.shield(call.future)

    def _on_dataset_deadline(self, call: DatasetCall) -> None:
        self._look(call.number, lambda located: self._expire_dataset(call, located))

    def _expire_dataset(self, call: DatasetCall, located: str) -> None:
        if call.over:
            return
        text = f"{call.what} did not end within {self._limits.dataset_s:g} s.{located}"
        hint = "Raise limits.dataset_s, or create fewer examples."
        call.fail(WorkerLostError(text, hint=hint, detail=printable(self._redactor.clean(call.stack))))
        self._stop(call, Cancel(call=call.number))

    def _on_rollout_deadline(self, call: RolloutCall) -> None:
        self._on_deadline(call, ROLLOUT_TIMEOUT)

    def _on_scoring_deadline(self, call: RolloutCall) -> None:
        self._on_deadline(call, GROUP_TIMEOUT)

    def _on_deadline(self, call: RolloutCall, reason: str) -> None:
        call.expired = reason
        self.on_fewer()
        self._look(call.number, lambda _: self._expire(call, reason))

    def _expire(self, call: RolloutCall, reason: str) -> None:
        # meanwhile it may have ended, gone on to its scoring, or been cancelled
        if call.expired == reason and not call.over:
            self._stop(call, Expire(call=call.number, reason=reason, message=call.deadline_text(reason)))

    def _stop(self, call: Call[Any], message: Cancel | Expire) -> None:
        """Ask a call to stop; kill the worker if it has not when its grace is over."""
        if isinstance(call, RolloutCall) and call.expired == ROLLOUT_TIMEOUT:
            # siblings that have run are still scored, and a judge needs headers for that
            call.scope.end(*call.late())
        else:
            self._close_scope(call.number)
        self._transmit(message)
        self._stopping.add(call.number)
        self._settled.clear()
        call.start_timer(self._grace)
        self.on_fewer()

    def _stopped(self, call: Call[Any]) -> None:
        self._stopping.discard(call.number)
        if not self._stopping:
            self._settled.set()

    def _kill_for(self, call: Call[Any]) -> None:
        if self.killed_for is None:
            self.killed_for = call.number
            self._kill()

    def _on_rollouts_ended(self, call: RolloutCall, message: RolloutsEnded) -> None:
        call.ended(message)
        self.on_fewer()
        self._on_ended(tuple(message.rollouts))
        if call.all_ended and call.expired not in (GROUP_TIMEOUT, CANCELLED) and not call.single and not call.over:
            if call.number in self._stopping:
                self._stopped(call)
            call.expired = None
            call.start_timer(self._scoring_time)

    def _on_snapshot(self, message: Snapshot) -> None:
        call = self._calls.get(message.call)
        if call is not None:
            call.snapshot(message)
        elif message.call > self._last:
            # others may have ended meanwhile: this comes on another channel than their ends
            raise FrameError(f"a snapshot of call {message.call}, which is not in flight")

    def _log(self, message: Log) -> None:
        # threads and tasks that outlive their call still print
        over = message.call is not None and START_CALL < message.call <= self._last and message.call not in self._calls
        call = None if message.call is None or over else self._call(message.call)
        if isinstance(call, RolloutCall) and message.rollouts:
            call.log(message)
        else:
            self._log_outside(message)

    def _log_outside(self, message: Log) -> None:
        cost = self._outside_cost + message.cost
        # a worker counts what belongs to a call, but to none of its rollouts, for each call apart
        if cost > most_output(self._limits.rollout_log_bytes) * (1 + self._last):
            self._holding.count_excess()
            return
        self._outside_cost = cost
        if message.dropped:
            self._on_output(gap_line(message.dropped))
        if message.text:
            self._on_output(log_line(message, self._redactor))

    def _call(self, number: int) -> Call[Any]:
        call = self._calls.get(number)
        if call is None:
            raise FrameError(f"a message for call {number}, which is not in flight")
        return call

    def _rollouts(self, number: int) -> RolloutCall:
        call = self._call(number)
        if not isinstance(call, RolloutCall):
            raise FrameError(f"a message about rollouts for {call.what}")
        return call

    def _forget(self, call: Call[Any]) -> None:
        call.stop_timer()
        if call.number in self._stopping:
            self._stopped(call)
        del self._calls[call.number]
        self._spin.end()
        self._rollouts_in_flight -= call.rollouts
        self._holding.give(call.held)
        self._close_scope(call.number)
        self.on_fewer()

    def _close_scope(self, number: int) -> None:
        scope = self._scopes.pop(number, None)
        if scope is not None:
            scope.leave()


def _nobody() -> None:
    """Nobody gives rollouts anything."""
