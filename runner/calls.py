"""Calls of the caller that a worker has not answered yet, and how each is answered, whatever happens to the worker.

Comes in: what the worker says of a call, and its death. Goes out: one result per call. Refuses, as `FrameError`, what
no honest worker says of a dataset.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from runner.broker import CallScope
from runner.deadlines import Deadlines
from runner.errors import FrameError, RemoteError
from runner.limits import Limits
from runner.protocol import (
    DatasetPart,
    RemoteFailure,
    Snapshot,
)
from runner.redaction import Redactor
from runner.text import printable

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Death:
    """How a worker came to its end.

    Args:
        text: What happened, in one line.
        killed_for: The call for whose sake we killed the worker, if we did.
        stack: Where it was, as far as that is known.
    """

    text: str
    killed_for: int | None = None
    stack: str = ""


class Call(Generic[T]):
    """A call in flight.

    Args:
        number: Its id on the wire.
        scope: What it may ask headers for.
        what: The call in words, for error texts.
    """

    __slots__ = ("_deadlines", "future", "number", "over", "scope", "stack", "what")

    rollouts = 0
    """How many rollouts it runs."""

    @property
    def held(self) -> int:
        """Bytes of its worker's `Holding` that it takes."""
        return 0

    def __init__(self, number: int, scope: CallScope, what: str) -> None:
        self.number = number
        self.scope = scope
        self.what = what
        self.future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.over = False
        """Whether it was answered, or ended in another way; its future may have been cancelled before that."""
        self._deadlines: Deadlines[Any] | None = None
        self.stack = ""
        """Where its own task was when the worker was asked last."""

    def snapshot(self, message: Snapshot) -> None:
        """The worker says where the call is."""
        if message.rollout_id is not None:
            raise FrameError(f"a snapshot of rollout {message.rollout_id!r}, which does not belong to {self.what}")
        self.stack = message.stack

    def done(self) -> None:
        """The worker says that the call ended well."""
        raise FrameError(f"unexpected end of {self.what}")

    def failed(self, failure: RemoteFailure, redactor: Redactor) -> None:
        """The worker says that the call raised."""
        self.fail(remote_error(failure, self.what, redactor))

    def died(self, death: Death, error: Exception) -> None:
        """The worker is gone; `error` is what a call without outcomes of its own raises."""
        self.fail(error)

    def settle(self, result: T) -> None:
        """End the call with a result."""
        self.over = True
        self.stop_timer()
        if not self.future.done():
            self.future.set_result(result)

    def fail(self, error: Exception) -> None:
        """End the call with an exception."""
        self.over = True
        self.stop_timer()
        if not self.future.done():
            self.future.set_exception(error)
            # a caller that was cancelled meanwhile never looks
            self.future.exception()

    def start_timer(self, deadlines: Deadlines[Any]) -> None:
        """Wait for this deadline, and no other."""
        self.stop_timer()
        self._deadlines = deadlines
        deadlines.start(self)

    def stop_timer(self) -> None:
        """Forget the deadline that is being waited for."""
        if self._deadlines is not None:
            self._deadlines.stop(self)
            self._deadlines = None


class DatasetCall(Call[list[str]]):
    """A `create_dataset` in flight; its result is the example ids in order."""

    __slots__ = ("_bytes", "_ids", "_limits")

    def __init__(self, number: int, scope: CallScope, what: str, limits: Limits) -> None:
        super().__init__(number, scope, what)
        self._limits = limits
        self._ids: list[str] = []
        self._bytes = 0

    def part(self, message: DatasetPart) -> None:
        """Take in the next ids."""
        self._ids += message.ids
        self._bytes += sum(len(example_id.encode()) for example_id in message.ids)
        if len(self._ids) > self._limits.dataset_examples or self._bytes > self._limits.dataset_bytes:
            raise FrameError(
                f"{self.what} gave {len(self._ids)} example ids of {self._bytes} bytes, "
                f"expected at most {self._limits.dataset_examples} of {self._limits.dataset_bytes} bytes"
            )
        if not all(map(str.strip, message.ids)):
            raise FrameError(f"{self.what} gave a blank example id")

    def done(self) -> None:
        """All ids have come."""
        self.settle(self._ids)


def remote_error(failure: RemoteFailure, what: str, redactor: Redactor) -> RemoteError:
    """Turn what the worker says of an exception into ours."""
    kind, text = redactor.clean(failure.type), redactor.clean(failure.message)
    traceback = redactor.clean(failure.traceback)
    return RemoteError(
        # this may end up on a terminal as it is; the parts are what the worker said
        printable(f"{what} raised {kind}: {text}" if text else f"{what} raised {kind}."),
        remote_type=kind,
        remote_message=text,
        remote_traceback=traceback,
        detail=printable(traceback),
    )
