"""The calls of one worker: sending them, what the worker says of them, and their deadlines.

Comes in: calls, and the worker's messages about calls. Goes out: results. Refuses, as `FrameError`, messages about
calls that are not in flight or that do not fit the call.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from benchmax.envs.shared_types import DatasetSplit, RolloutRequest
from runner.broker import CallScope
from runner.calls import Call, DatasetCall, Death, RolloutCall, log_line
from runner.errors import FrameError, WorkerLostError
from runner.limits import Limits
from runner.protocol import (
    CallDone,
    CallFailed,
    Cancel,
    CreateDataset,
    DatasetPart,
    Expire,
    Log,
    Outcome,
    RolloutsEnded,
    RolloutSpec,
    RunGroup,
    RunRollout,
    ToWorker,
    Transcript,
)
from runner.record import CANCELLED, GROUP_TIMEOUT, ROLLOUT_TIMEOUT, LogLine, RolloutRecord
from runner.redaction import Redactor

T = TypeVar("T")

START_CALL: Final = 0
"""Id of the scope in which the environment is constructed."""

CallMessage = Outcome | RolloutsEnded | Transcript | Log | CallDone | CallFailed | DatasetPart


@dataclass(frozen=True, slots=True)
class Position:
    """Where an example is: the worker's number of its dataset, and its place in it."""

    dataset: int
    index: int


class Conversation:
    """Everything in flight between the caller and one worker.

    Args:
        send: Queues a message to the worker.
        kill: Ends the worker at once; called for a call that was asked to stop and did not.
        limits: Deadlines and sizes.
        redactor: Cleans every text the worker sends.
        on_output: Called with what was logged or printed outside of rollouts.
        on_ended: Called with the ids of rollouts that have run.
    """

    def __init__(
        self,
        send: Callable[[ToWorker], None],
        kill: Callable[[], None],
        limits: Limits,
        redactor: Redactor,
        on_output: Callable[[LogLine], None],
        on_ended: Callable[[tuple[str, ...]], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._transmit = send
        self._kill = kill
        self._limits = limits
        self._redactor = redactor
        self._on_output = on_output
        self._on_ended = on_ended
        self._calls: dict[int, Call[Any]] = {}
        self._scopes: dict[int, CallScope] = {}
        self._last = START_CALL
        self._rollouts_in_flight = 0
        self.deadline_of: int | None = None
        """The call for whose sake the worker was killed, if it was."""

    @property
    def load(self) -> int:
        """Rollouts in flight."""
        return self._rollouts_in_flight

    @property
    def scopes(self) -> Mapping[int, CallScope]:
        """What each call in flight may ask headers for."""
        return self._scopes

    def open_scope(self, scope: CallScope) -> None:
        """Let the construction of the environment ask for headers."""
        self._scopes[START_CALL] = scope

    def close_scope(self) -> None:
        """End what `open_scope` began."""
        self._scopes.pop(START_CALL, None)

    def closing(self) -> None:
        """The caller closes the environment: what is still in flight ends as cancelled, however it ends."""
        for call in self._calls.values():
            if isinstance(call, RolloutCall):
                call.stop_timer()
                call.expired = CANCELLED

    def died(self, death: Death) -> None:
        """The worker is gone: settle everything that is open."""
        for call in [*self._calls.values()]:
            call.died(death, WorkerLostError(f"{call.what}: {death.text}"))
            self._forget(call)

    def on_message(self, message: CallMessage) -> None:
        """Take in what the worker says of a call.

        Raises:
            FrameError: no honest worker says that.
        """
        match message:
            case Outcome():
                self._rollouts(message.call).outcome(message)
            case RolloutsEnded():
                self._on_rollouts_ended(self._rollouts(message.call), message)
            case Transcript():
                self._rollouts(message.call).transcript(message)
            case Log():
                self._log(message)
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
        call = DatasetCall(self._number(), scope, f"create_dataset({split!r})")
        message = CreateDataset(
            call=call.number, split=split, base_dir=str(base_dir), max_examples=max_examples, bindings=scope.names()
        )
        self._send(call, message)
        call.timer = self._loop.call_later(self._limits.dataset_s, self._on_dataset_deadline, call)
        return call.number, await self._result(call)

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
        call = RolloutCall(self._number(), scope, what, requests, self._limits, self._redactor, single=single)
        specs = [
            RolloutSpec(
                rollout_id=request.rollout_id,
                dataset=position.dataset,
                position=position.index,
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
        call.timer = self._loop.call_later(self._limits.rollout_s, self._on_deadline, call, ROLLOUT_TIMEOUT)
        return call

    async def finish(self, call: RolloutCall) -> list[RolloutRecord]:
        """Wait for rollouts that were begun; return a record of each, in request order.

        Raises:
            RemoteError: `run_group` or `run_rollout` raised.
        """
        records: list[RolloutRecord] = await self._result(call)
        return records

    def _number(self) -> int:
        self._last += 1
        return self._last

    def _send(self, call: Call[Any], message: CreateDataset | RunGroup | RunRollout) -> None:
        self._transmit(message)
        self._calls[call.number] = call
        self._scopes[call.number] = call.scope
        self._rollouts_in_flight += call.rollouts

    async def _result(self, call: Call[T]) -> T:
        try:
            return await asyncio.shield(call.future)
        except asyncio.CancelledError:
            if not call.future.done():
                await self._abandon(call)
            raise

    async def _abandon(self, call: Call[Any]) -> None:
        """The caller was cancelled: cancel in the worker too, and wait until the call has ended there."""
        self._transmit(Cancel(call=call.number))
        call.stop_timer()
        call.timer = self._loop.call_later(self._limits.cancel_grace_s, self._kill_for, call)
        with contextlib.suppress(Exception):
            # a second cancellation must not leave the call running unseen; the grace above bounds the wait
            while not call.future.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.shield(call.future)

    def _on_dataset_deadline(self, call: DatasetCall) -> None:
        text = f"{call.what} did not end within {self._limits.dataset_s:g} s."
        call.fail(WorkerLostError(text, hint="Raise limits.dataset_s, or create fewer examples."))
        self._transmit(Cancel(call=call.number))
        call.timer = self._loop.call_later(self._limits.cancel_grace_s, self._kill_for, call)

    def _on_deadline(self, call: RolloutCall, reason: str) -> None:
        call.expired = reason
        self._transmit(Expire(call=call.number, reason=reason, message=call.deadline_text(reason)))
        call.timer = self._loop.call_later(self._limits.cancel_grace_s, self._kill_for, call)

    def _kill_for(self, call: Call[Any]) -> None:
        """The call was asked to stop and did not."""
        if self.deadline_of is None:
            self.deadline_of = call.number
            self._kill()

    def _on_rollouts_ended(self, call: RolloutCall, message: RolloutsEnded) -> None:
        call.ended(message)
        self._on_ended(tuple(message.rollouts))
        if (
            call.all_ended
            and call.expired not in (GROUP_TIMEOUT, CANCELLED)
            and not call.single
            and not call.future.done()
        ):
            call.stop_timer()
            call.expired = None
            call.timer = self._loop.call_later(self._limits.scoring_s, self._on_deadline, call, GROUP_TIMEOUT)

    def _log(self, message: Log) -> None:
        # threads and tasks that outlive their call still print
        over = message.call is not None and START_CALL < message.call <= self._last and message.call not in self._calls
        call = None if message.call is None or over else self._call(message.call)
        if isinstance(call, RolloutCall) and message.rollouts:
            call.log(message)
        elif message.text:
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
        del self._calls[call.number]
        self._rollouts_in_flight -= call.rollouts
        self._scopes.pop(call.number, None)
