"""Calls of the caller that a worker has not answered yet, and how their rollouts settle, whatever happens to it.

Comes in: what the worker says of a call, and its death. Goes out: one result per call, one outcome per rollout.
Refuses, as `FrameError`, what no honest worker says: unknown or repeated rollouts, an end with something missing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import msgspec

from benchmax.envs.shared_types import RolloutAttempt, RolloutOutcome, RolloutRequest
from runner.broker import CallScope
from runner.errors import FrameError, RemoteError
from runner.limits import Limits
from runner.protocol import (
    DatasetPart,
    Log,
    Origin,
    Outcome,
    RemoteFailure,
    RolloutsEnded,
    Transcript,
)
from runner.record import (
    CANCELLED,
    GROUP_TIMEOUT,
    ROLLOUT_TIMEOUT,
    SANDBOX_ERROR,
    WORKER_LOST,
    Json,
    LogLine,
    RolloutRecord,
)
from runner.redaction import Redactor

T = TypeVar("T")

MAX_LOG_LINES: Final = 10_000
"""Kept per rollout, since a line costs more than its text."""

LOG_SLACK: Final = 2
"""A worker counts what a rollout prints apart from what its group does, so it may send twice the limit."""

_rewards_decoder = msgspec.json.Decoder(dict[str, int | float])
_transcript_decoder: msgspec.json.Decoder[list[Any]] = msgspec.json.Decoder(list[Any])


@dataclass(frozen=True, slots=True)
class Death:
    """How a worker came to its end.

    Args:
        text: What happened, in one line.
        deadline_of: The call whose deadline made us end the worker, if one did.
    """

    text: str
    deadline_of: int | None = None


class Call(Generic[T]):
    """A call in flight.

    Args:
        number: Its id on the wire.
        scope: What it may ask headers for.
        what: The call in words, for error texts.
    """

    rollouts = 0
    """How many rollouts it runs."""

    def __init__(self, number: int, scope: CallScope, what: str) -> None:
        self.number = number
        self.scope = scope
        self.what = what
        self.future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.timer: asyncio.TimerHandle | None = None

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
        self.stop_timer()
        if not self.future.done():
            self.future.set_result(result)

    def fail(self, error: Exception) -> None:
        """End the call with an exception."""
        self.stop_timer()
        if not self.future.done():
            self.future.set_exception(error)
            # a caller that was cancelled meanwhile never looks
            self.future.exception()

    def stop_timer(self) -> None:
        """Forget the deadline that is being waited for."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class DatasetCall(Call[list[str]]):
    """A `create_dataset` in flight; its result is the example ids in order."""

    def __init__(self, number: int, scope: CallScope, what: str) -> None:
        super().__init__(number, scope, what)
        self._ids: list[str] = []

    def part(self, message: DatasetPart) -> None:
        """Take in the next ids."""
        self._ids += message.ids

    def done(self) -> None:
        """All ids have come."""
        self.settle(self._ids)


class RolloutCall(Call[list[RolloutRecord]]):
    """Rollouts in flight: a group, or (`single`) one without group scoring."""

    def __init__(
        self,
        number: int,
        scope: CallScope,
        what: str,
        requests: Sequence[RolloutRequest[Any]],
        limits: Limits,
        redactor: Redactor,
        *,
        single: bool = False,
    ) -> None:
        super().__init__(number, scope, what)
        self.requests = {request.rollout_id: request for request in requests}
        self.rollouts = len(self.requests)
        self.single = single
        self.attempt: RolloutAttempt | None = None
        self._limits = limits
        self._redactor = redactor
        self._outcomes: dict[str, tuple[RolloutOutcome, Origin]] = {}
        self._seconds: dict[str, float] = {}
        self._transcripts: dict[str, Transcript] = {}
        self._logs: dict[str, list[LogLine]] = {}
        self._log_chars: dict[str, int] = {}
        self._dropped: dict[str, int] = {}
        self.expired: str | None = None
        """Reason of the deadline that has passed, from when the worker was asked to stop."""

    @property
    def all_ended(self) -> bool:
        """Whether every rollout has run, so that only scoring is left."""
        return len(self._seconds) == len(self.requests)

    def ended(self, message: RolloutsEnded) -> None:
        """Rollouts have run."""
        if len(message.rollouts) != len(message.seconds):
            raise FrameError("rollouts-ended: as many seconds as rollouts expected")
        for rollout_id, seconds in zip(message.rollouts, message.seconds, strict=True):
            self._known(rollout_id)
            if rollout_id in self._seconds:
                raise FrameError(f"rollout {rollout_id!r} ended twice")
            self._seconds[rollout_id] = seconds

    def transcript(self, message: Transcript) -> None:
        """A rollout's messages have come."""
        self._known(message.rollout_id)
        if message.rollout_id in self._transcripts:
            raise FrameError(f"rollout {message.rollout_id!r} sent two transcripts")
        if len(message.messages) > self._limits.transcript_bytes + 2:
            raise FrameError(f"a transcript of {len(message.messages)} bytes exceeds the limit")
        self._transcripts[message.rollout_id] = message

    def log(self, message: Log) -> None:
        """Something was logged inside some of the rollouts."""
        line = log_line(message, self._redactor)
        for rollout_id in message.rollouts:
            self._known(rollout_id)
            lines = self._logs.setdefault(rollout_id, [])
            dropped = message.dropped
            if message.text:
                # the worker keeps to the limit too, unless it lies
                chars = self._log_chars.get(rollout_id, 0) + len(line.text) + len(line.logger)
                if len(lines) < MAX_LOG_LINES and chars <= LOG_SLACK * self._limits.rollout_log_bytes:
                    lines.append(line)
                    self._log_chars[rollout_id] = chars
                else:
                    dropped += 1
            if dropped:
                self._dropped[rollout_id] = self._dropped.get(rollout_id, 0) + dropped

    def outcome(self, message: Outcome) -> None:
        """A rollout's outcome has come."""
        self._known(message.rollout_id)
        if message.rollout_id in self._outcomes:
            raise FrameError(f"rollout {message.rollout_id!r} has two outcomes")
        if message.rewards is None and not self.single:
            raise FrameError(f"the outcome of rollout {message.rollout_id!r} has no rewards")
        if message.origin == "runner" and (
            message.rewards != b"{}" or message.termination_reason not in (SANDBOX_ERROR, ROLLOUT_TIMEOUT)
        ):
            raise FrameError(f"the outcome of rollout {message.rollout_id!r} is not one that the runner chooses")
        clean = self._redactor.clean
        error = None if message.error is None else clean(message.error)
        try:
            rewards = None if message.rewards is None else _rewards_decoder.decode(message.rewards)
            reason = clean(message.termination_reason)
            if self.single:
                self.attempt = RolloutAttempt(
                    rollout_id=message.rollout_id, termination_reason=reason, rewards=rewards, error=error
                )
            cleaned = {clean(name): value for name, value in (rewards or {}).items()}
            outcome = RolloutOutcome(cleaned, reason, error)
        except (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError) as broken:
            raise FrameError(f"the outcome of rollout {message.rollout_id!r} is not valid: {broken}") from broken
        self._outcomes[message.rollout_id] = (outcome, message.origin)

    def done(self) -> None:
        """The worker says that the call ended well."""
        missing = self.requests.keys() - self._outcomes.keys()
        if missing:
            raise FrameError(f"{self.what} ended without an outcome for {sorted(missing)[:3]}")
        self.settle(self.records())

    def failed(self, failure: RemoteFailure, redactor: Redactor) -> None:
        """The worker says that the call raised; after a deadline of ours that is what was asked for."""
        if self.expired is None:
            super().failed(failure, redactor)
            return
        self._fill(self.requests, self.expired, self.deadline_text(self.expired))
        self.settle(self.records())

    def died(self, death: Death, error: Exception) -> None:
        """The worker is gone: outcomes that came stand, every other rollout gets the one that fits."""
        if self.expired == CANCELLED:
            self._fill(self.requests, CANCELLED, self.deadline_text(CANCELLED))
        elif death.deadline_of is None:
            self._fill(self.requests, SANDBOX_ERROR, death.text)
        elif death.deadline_of == self.number and self.expired is not None:
            if self.expired == ROLLOUT_TIMEOUT:
                late = self.requests.keys() - self._seconds.keys()
                self._fill(late, ROLLOUT_TIMEOUT, f"{self.deadline_text(ROLLOUT_TIMEOUT)} {death.text}")
            else:
                self._fill(self.requests, self.expired, f"{self.deadline_text(self.expired)} {death.text}")
        lost = f"The worker was ended because of another rollout. {death.text}"
        self._fill(self.requests, WORKER_LOST, lost)
        self.settle(self.records())

    def deadline_text(self, reason: str) -> str:
        """Say in words which deadline passed, or what else ended the call."""
        if reason == CANCELLED:
            return "The environment was closed."
        if reason == GROUP_TIMEOUT:
            return f"Group scoring did not end within {self._limits.scoring_s:g} s."
        return f"The rollout did not end within {self._limits.rollout_s:g} s."

    def records(self) -> list[RolloutRecord]:
        """Everything known of each rollout, in request order; each has an outcome by now."""
        return [self._record(rollout_id) for rollout_id in self.requests]

    def _record(self, rollout_id: str) -> RolloutRecord:
        outcome, origin = self._outcomes[rollout_id]
        transcript = self._transcripts.get(rollout_id)
        return RolloutRecord(
            rollout_id=rollout_id,
            example_id=self.requests[rollout_id].example.id,
            outcome=outcome,
            origin=origin,
            seconds=self._seconds.get(rollout_id),
            transcript=None if transcript is None else self._messages(transcript.messages),
            transcript_omitted_bytes=0 if transcript is None else transcript.omitted_bytes,
            logs=tuple(self._logs.get(rollout_id, ())),
            dropped_logs=self._dropped.get(rollout_id, 0),
        )

    def _messages(self, data: bytes) -> list[Json] | None:
        try:
            # after decoding: in JSON a value may be written with any number of escapes
            return self._redactor.clean_json(_transcript_decoder.decode(data))
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            # only a forged message gets here; a transcript is no ground to doubt the outcome beside it
            return None

    def _fill(self, rollout_ids: Iterable[str], reason: str, error: str) -> None:
        for rollout_id in rollout_ids:
            if rollout_id not in self._outcomes:
                self._outcomes[rollout_id] = (RolloutOutcome({}, reason, self._redactor.clean(error)), "runner")

    def _known(self, rollout_id: str) -> None:
        if rollout_id not in self.requests:
            raise FrameError(f"rollout {rollout_id!r} does not belong to {self.what}")


def log_line(message: Log, redactor: Redactor) -> LogLine:
    """Turn a log message into a line without secrets."""
    return LogLine(
        stream=message.stream,
        level=message.level,
        logger=redactor.clean(message.logger),
        text=redactor.clean(message.text),
    )


def remote_error(failure: RemoteFailure, what: str, redactor: Redactor) -> RemoteError:
    """Turn what the worker says of an exception into ours."""
    kind, text = redactor.clean(failure.type), redactor.clean(failure.message)
    return RemoteError(
        f"{what} raised {kind}: {text}" if text else f"{what} raised {kind}.",
        remote_type=kind,
        remote_message=text,
        remote_traceback=redactor.clean(failure.traceback),
    )
