"""Rollouts in flight, and how they settle, whatever happens to their worker.

Comes in: what the worker says of them, and its death. Goes out: one outcome per rollout. Refuses, as `FrameError`, what
no honest worker says: unknown or repeated rollouts, an end with something missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from benchmax.envs.shared_types import RolloutAttempt, RolloutOutcome, RolloutRequest
from runner.broker import CallScope
from runner.calls import Call, Death
from runner.errors import FrameError
from runner.holding import Holding
from runner.limits import MAX_REWARD_COMPONENTS, MAX_TRANSCRIPT_VALUES, VALUE_BYTES, Limits
from runner.log_shelf import LogShelf
from runner.protocol import (
    CANCELLED,
    GROUP_TIMEOUT,
    ROLLOUT_TIMEOUT,
    SANDBOX_ERROR,
    WORKER_LOST,
    GroupDone,
    Log,
    Origin,
    Outcome,
    PlainOutcome,
    RemoteFailure,
    RolloutsEnded,
    Snapshot,
    Transcript,
)
from runner.record import Json, RolloutRecord
from runner.redaction import Redactor
from runner.transcript import decoded, values

M = TypeVar("M", bound=Transcript | Snapshot)

_rewards_decoder = msgspec.json.Decoder(dict[str, int | float])


class RolloutCall(Call[Mapping[str, RolloutOutcome]]):
    """Rollouts in flight: a group, or (`single`) one without group scoring. Its result is their outcomes, in order."""

    __slots__ = (
        "_held", "_holding", "_limits", "_logs", "_ours", "_outcomes", "_redactor", "_seconds", "_snapshots",
        "_transcripts", "attempt", "expired", "requests", "rollouts", "single",
    )  # fmt: skip

    def __init__(
        self,
        number: int,
        scope: CallScope,
        what: str,
        requests: Sequence[RolloutRequest[Any]],
        limits: Limits,
        redactor: Redactor,
        holding: Holding,
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
        self._outcomes: dict[str, RolloutOutcome] = {}
        # as a set; an empty dict takes a third of it
        self._ours: dict[str, None] = {}
        self._seconds: dict[str, float] = {}
        self._transcripts: dict[str, Transcript] = {}
        self._snapshots: dict[str, Snapshot] = {}
        self._holding = holding
        self._held = 0
        self._logs = LogShelf(limits.rollout_log_bytes, holding, redactor)
        self.expired: str | None = None
        """Reason of the deadline that has passed, from when the worker was asked to stop."""

    @property
    def held(self) -> int:
        """Bytes of its worker's `Holding` that transcripts, logs and rewards take."""
        return self._held + self._logs.held

    @property
    def all_ended(self) -> bool:
        """Whether every rollout has run, so that only scoring is left."""
        return len(self._seconds) == len(self.requests)

    @property
    def worked(self) -> bool:
        """Whether code of the bundle said of any rollout how it ended."""
        return len(self._ours) < len(self._outcomes)

    def is_late(self, rollout_id: str) -> bool:
        """Whether it has a rollout that has not run to its end."""
        return rollout_id in self.requests and rollout_id not in self._seconds

    def late(self) -> set[str]:
        """Return the rollouts that have not run to their end."""
        return self.requests.keys() - self._seconds.keys()

    def ended(self, message: RolloutsEnded) -> None:
        """Rollouts have run."""
        if len(message.rollouts) != len(message.seconds):
            raise FrameError("rollouts-ended: as many seconds as rollouts expected")
        for rollout_id, seconds in zip(message.rollouts, message.seconds, strict=True):
            self._known(rollout_id)
            self._end(rollout_id, seconds)

    def transcript(self, message: Transcript) -> None:
        """A rollout's messages have come."""
        self._known(message.rollout_id)
        if message.rollout_id in self._transcripts:
            raise FrameError(f"rollout {message.rollout_id!r} sent two transcripts")
        self._transcripts[message.rollout_id] = self._taken(message)

    def snapshot(self, message: Snapshot) -> None:
        """The worker says where a rollout, or the call itself, is."""
        if message.rollout_id is None:
            super().snapshot(message)
            return
        self._known(message.rollout_id)
        last = self._snapshots.pop(message.rollout_id, None)
        if last is not None:
            self._give(_size(last))
        self._snapshots[message.rollout_id] = self._taken(message)

    def log(self, message: Log) -> None:
        """Something was logged inside some of the rollouts."""
        if len(message.rollouts) > len(self.requests):
            raise FrameError(f"a log line names {len(message.rollouts)} rollouts of {self.what}")
        for rollout_id in message.rollouts:
            self._known(rollout_id)
        self._logs.add(message)

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
        try:
            rewards = None if message.rewards is None else _rewards_decoder.decode(message.rewards)
            if rewards is not None and len(rewards) > MAX_REWARD_COMPONENTS:
                raise ValueError(f"{len(rewards)} rewards, expected at most {MAX_REWARD_COMPONENTS}")
            outcome = self._clean_outcome(rewards or {}, message.termination_reason, message.error)
            if self.single:
                self.attempt = RolloutAttempt(
                    rollout_id=message.rollout_id,
                    termination_reason=outcome.termination_reason,
                    rewards=None if rewards is None else outcome.rewards,
                    error=outcome.error,
                )
        except (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError) as broken:
            raise FrameError(f"the outcome of rollout {message.rollout_id!r} is not valid: {broken}") from broken
        if self._take(len(message.rewards or b"") + 2 * VALUE_BYTES * len(outcome.rewards)):
            self._outcomes[message.rollout_id] = outcome
            if message.origin == "runner":
                self._ours[message.rollout_id] = None
        else:
            self.attempt = None
            self._fill([message.rollout_id], SANDBOX_ERROR, self._no_room())
        self.scope.end(message.rollout_id)

    def group_done(self, message: GroupDone) -> tuple[str, ...]:
        """The worker says that the group ended well, and how each rollout did; return those it says have run."""
        if self.single or self._outcomes or len(message.outcomes) != len(self.requests):
            raise FrameError(f"unexpected end of {self.what} with {len(message.outcomes)} outcomes")
        told = len(self._seconds)
        make = _unchecked_outcome if self._are_plain(message.outcomes) else self._clean_outcome
        for rollout_id, plain in zip(self.requests, message.outcomes, strict=True):
            if plain.seconds is not None:
                self._end(rollout_id, plain.seconds)
            try:
                self._outcomes[rollout_id] = make(plain.rewards, plain.termination_reason)
            except ValueError as broken:
                raise FrameError(f"the outcome of rollout {rollout_id!r} is not valid: {broken}") from broken
        self.settle(self._outcomes)
        return tuple(self._seconds)[told:]

    def done(self) -> None:
        """The worker says that the call ended well."""
        missing = self.requests.keys() - self._outcomes.keys()
        if missing:
            raise FrameError(f"{self.what} ended without an outcome for {sorted(missing)[:3]}")
        self._settle()

    def failed(self, failure: RemoteFailure, redactor: Redactor) -> None:
        """The worker says that the call raised; after a deadline of ours that is what was asked for."""
        if self.expired is None:
            super().failed(failure, redactor)
            return
        self._fill(self.requests, self.expired, self.deadline_text(self.expired))
        self._settle()

    def died(self, death: Death, error: Exception) -> None:
        """The worker is gone: outcomes that came stand, every other rollout gets the one that fits."""
        # what the worker said of each rollout by itself says more
        self.stack = self.stack or death.stack
        if self.expired == CANCELLED:
            self._fill(self.requests, CANCELLED, self.deadline_text(CANCELLED))
        elif death.killed_for is None:
            self._fill(self.requests, SANDBOX_ERROR, death.text)
        elif death.killed_for == self.number and self.expired is not None:
            if self.expired == ROLLOUT_TIMEOUT:
                self._fill(self.late(), ROLLOUT_TIMEOUT, f"{self.deadline_text(ROLLOUT_TIMEOUT)} {death.text}")
            else:
                self._fill(self.requests, self.expired, f"{self.deadline_text(self.expired)} {death.text}")
        lost = f"The worker was ended because of another rollout. {death.text}"
        self._fill(self.requests, WORKER_LOST, lost)
        self._settle()

    def deadline_text(self, reason: str) -> str:
        """Say in words which deadline passed, or what else ended the call."""
        if reason == CANCELLED:
            return "The environment was closed."
        if reason == GROUP_TIMEOUT:
            return f"Group scoring did not end within {self._limits.scoring_s:g} s."
        return f"The rollout did not end within {self._limits.rollout_s:g} s."

    def records(self) -> list[RolloutRecord]:
        """Everything known of each rollout, in request order, once the call has its result."""
        return [self._record(rollout_id) for rollout_id in self.requests]

    def _record(self, rollout_id: str) -> RolloutRecord:
        origin: Origin = "runner" if rollout_id in self._ours else "environment"
        snapshot = self._snapshots.get(rollout_id)
        transcript: Transcript | Snapshot | None = self._transcripts.get(rollout_id, snapshot)
        messages = None if transcript is None else transcript.messages
        stack = self.stack if snapshot is None else snapshot.stack
        return RolloutRecord(
            rollout_id=rollout_id,
            example_id=self.requests[rollout_id].example.id,
            outcome=self._outcomes[rollout_id],
            origin=origin,
            seconds=self._seconds.get(rollout_id),
            transcript=None if messages is None else self._messages(messages),
            transcript_omitted_bytes=0 if transcript is None else transcript.omitted_bytes,
            logs=self._logs.lines(rollout_id),
            dropped_logs=self._logs.missing(rollout_id),
            held_bytes=self._logs.size(rollout_id) + (0 if transcript is None else _size(transcript)),
            stack=self._redactor.clean(stack) if origin == "runner" else "",
        )

    def _taken(self, message: M) -> M:
        """Check a message's transcript; leave it out of the message if there is no room for it."""
        data = message.messages or b""
        if len(data) > self._limits.transcript_bytes + 2:
            raise FrameError(f"a transcript of {len(data)} bytes, expected at most {self._limits.transcript_bytes}")
        count = values(data, exact=False)
        if count > MAX_TRANSCRIPT_VALUES:
            count = values(data, exact=True)
        if count > MAX_TRANSCRIPT_VALUES:
            raise FrameError(f"a transcript of {count} values, expected at most {MAX_TRANSCRIPT_VALUES}")
        if self._take(_size(message)):
            return message
        changes = {"stack": ""} if isinstance(message, Snapshot) else {}
        omitted = message.omitted_bytes + len(data)
        return msgspec.structs.replace(message, messages=b"", omitted_bytes=omitted, **changes)

    def _messages(self, data: bytes) -> list[Json] | None:
        try:
            # after decoding: in JSON a value may be written with any number of escapes
            return self._redactor.clean_json(decoded(data))
        except ValueError:
            # forged, or left out for want of room; a transcript is no ground to doubt the outcome beside it
            return None

    def _take(self, size: int) -> bool:
        if not self._holding.take(size):
            return False
        self._held += size
        return True

    def _give(self, size: int) -> None:
        self._holding.give(size)
        self._held -= size

    def _no_room(self) -> str:
        return (
            f"The rollouts in flight in this worker hold more than {self._limits.in_flight_bytes} bytes. "
            "Run fewer of them at once, or raise limits.in_flight_bytes."
        )

    def _fill(self, rollout_ids: Iterable[str], reason: str, error: str) -> None:
        for rollout_id in rollout_ids:
            if rollout_id not in self._outcomes:
                self._outcomes[rollout_id] = RolloutOutcome({}, reason, self._redactor.clean(error))
                self._ours[rollout_id] = None

    def _settle(self) -> None:
        """End with the outcomes that came, in whatever order."""
        self.settle({rollout_id: self._outcomes[rollout_id] for rollout_id in self.requests})

    def _are_plain(self, outcomes: Iterable[PlainOutcome]) -> bool:
        """Whether there is nothing to refuse or to clean in outcomes; their types and numbers were checked before."""
        # siblings have the same few reasons and names of rewards, so that few texts have to be looked at
        texts = {text for plain in outcomes for text in (plain.termination_reason, *plain.rewards)}
        clean = self._redactor.clean
        return all(map(str.strip, texts)) and (
            not self._redactor.knows_any or all(clean(text) == text for text in texts)
        )

    def _clean_outcome(self, rewards: Mapping[str, float], reason: str, error: str | None = None) -> RolloutOutcome:
        clean = self._redactor.clean
        cleaned = {clean(name): value for name, value in rewards.items()}
        return RolloutOutcome(cleaned, clean(reason), None if error is None else clean(error))

    def _end(self, rollout_id: str, seconds: float) -> None:
        if rollout_id in self._seconds:
            raise FrameError(f"rollout {rollout_id!r} ended twice")
        self._seconds[rollout_id] = seconds

    def _known(self, rollout_id: str) -> None:
        if rollout_id not in self.requests:
            raise FrameError(f"rollout {rollout_id!r} does not belong to {self.what}")


_new_outcome = object.__new__
# past a frozen class's own __setattr__
_set_rewards, _set_reason, _set_error = (
    vars(RolloutOutcome)[name].__set__ for name in ("rewards", "termination_reason", "error")
)


def _unchecked_outcome(rewards: Mapping[str, float], reason: str) -> RolloutOutcome:
    """Make an outcome of values that are known to be good: checking each once more takes most of making it."""
    outcome = _new_outcome(RolloutOutcome)
    _set_rewards(outcome, rewards)
    _set_reason(outcome, reason)
    _set_error(outcome, None)
    return outcome


def _size(message: Transcript | Snapshot) -> int:
    """What a message takes when its transcript is decoded, at most."""
    data = message.messages or b""
    return len(data) + VALUE_BYTES * values(data, exact=False) + len(getattr(message, "stack", ""))
