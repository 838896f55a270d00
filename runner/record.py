"""What is known of one rollout beyond the three fields of its outcome, and the events a caller can watch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from benchmax.envs.shared_types import RolloutOutcome
from runner.errors import WorkerEnd
from runner.fields import Origin, Stream
from runner.gateway.exchange import CallTrace, Usage
from runner.gateway.findings import Finding
from runner.gateway.retelling import retold
from runner.gateway.session import Collected
from runner.redaction import Redactor

Json = Mapping[str, "Json"] | list["Json"] | str | int | float | bool | None

MODEL_ERROR = "model_error"
"""The one reason of an environment's own that says nothing about the bundle: the model did not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """Something logged or printed.

    Args:
        stream: `log` for a log record, `stdout` or `stderr` for printed text.
        level: The record's numeric level; 0 for printed text.
        logger: The record's logger; empty for printed text.
        text: The text, possibly of several lines.
    """

    stream: Stream
    level: int
    logger: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutRecord:
    """Everything known of one rollout.

    Args:
        rollout_id: The request's id.
        example_id: Its example's id.
        outcome: The outcome that `run_group` returns for it.
        origin: Who chose the termination reason: code of the bundle (`environment`) or the runner.
        seconds: How long it ran, without group scoring; `None` when it was not seen to end.
        transcript: Its messages, when the environment's attempt has any or it shows them while it runs: those so far
            where the rollout did not come to its end. Else, behind the gateway, those of its last chat request and
            their answer.
        transcript_omitted_bytes: Size of the messages that did not fit the limit.
        logs: What it logged and printed, in order.
        dropped_logs: Log lines beyond the limits; among `logs`, a line says so where they are missing.
        stack: Where it was when the runner ended it, or its worker ended, innermost frame last or first as the text
            says; empty when that is not known.
        held_bytes: What transcript and logs take in this process, about.
        calls: Its calls of its own model, in the order in which they ended, as far as they are kept; empty without the
            gateway.
        num_calls: How many of them were sent on.
        usage: Their tokens together; `None` without the gateway.
        diagnostics: What of its requests training could not honour.
    """

    rollout_id: str
    example_id: str
    outcome: RolloutOutcome
    origin: Origin
    seconds: float | None = None
    transcript: list[Json] | None = None
    transcript_omitted_bytes: int = 0
    logs: tuple[LogLine, ...] = ()
    dropped_logs: int = 0
    stack: str = ""
    held_bytes: int = 0
    calls: tuple[CallTrace, ...] = ()
    num_calls: int = 0
    usage: Usage | None = None
    diagnostics: tuple[Finding, ...] = ()

    def with_session(self, collected: Collected, redactor: Redactor, *, transcript_bytes: int) -> RolloutRecord:
        """Return the same with what the gateway saw.

        Args:
            collected: The rollout's session.
            redactor: Takes secrets out of what the worker sent.
            transcript_bytes: The most that a transcript may have.
        """
        clean = redactor.clean
        known = replace(
            self,
            calls=tuple(_clean_call(trace, redactor) for trace in collected.traces),
            num_calls=collected.num_calls,
            usage=collected.usage,
            diagnostics=tuple(replace(found, message=clean(found.message)) for found in collected.findings),
        )
        told = None if self.transcript is not None else retold(collected.traces, transcript_bytes)
        if told is None:
            return known
        return replace(
            known,
            transcript=redactor.clean_json(told.messages),
            transcript_omitted_bytes=told.omitted_bytes,
            held_bytes=known.held_bytes + told.held_bytes,
        )

    @property
    def infrastructure(self) -> bool:
        """Whether the rollout failed for reasons that say nothing about the environment's scoring."""
        return self.origin == "runner" or self.outcome.termination_reason == MODEL_ERROR

    def error_text(self) -> str:
        """Return why it did not end well: the outcome's error, else the last warning or error it logged."""
        if self.outcome.error:
            return self.outcome.error
        for line in reversed(self.logs):
            # that it ended, and in which reason, is no explanation of either
            if line.stream == "log" and line.level >= 30 and not line.text.startswith("benchmax.rollout.terminated "):
                return _last_line(line.text)
        return ""


def _clean_call(trace: CallTrace, redactor: Redactor) -> CallTrace:
    """The same without secrets in the request's body; the answer's was cleaned when the client got it."""
    if not redactor.knows_any:
        return trace
    # whatever its bytes are, none is lost
    text = trace.call.body.decode("utf-8", "surrogateescape")
    clean = redactor.clean(text)
    if clean == text:
        return trace
    return replace(trace, call=replace(trace.call, body=clean.encode("utf-8", "surrogateescape")))


def _last_line(text: str) -> str:
    """The line of a traceback that says what was raised; a text without one is returned as it is."""
    if "\nTraceback (most recent call last):" not in text:
        return text
    return next((line for line in reversed(text.splitlines()) if line.strip() and not line.startswith(" ")), text)


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseEvent:
    """Something that takes a while has begun or moved on.

    Args:
        phase: Which part of the run: finding an interpreter, resolving, installing, starting the worker, and so on.
        message: One line for a person.
        elapsed_s: Seconds since the environment was started.
    """

    phase: str
    message: str
    elapsed_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputEvent:
    """Something was logged or printed outside of any rollout."""

    line: LogLine


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutsEndedEvent:
    """Rollouts have run; their group may still have to be scored."""

    rollout_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordEvent:
    """A rollout has its outcome."""

    record: RolloutRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerEvent:
    """A worker became ready, or ended.

    Args:
        state: `ready` or `ended`.
        pid: Its process id on the host.
        message: One line for a person.
    """

    state: Literal["ready", "ended"]
    pid: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StallEvent:
    """The event loop of a worker does not turn, so that every rollout there waits; or (`over`) it does again.

    Told when a stall has lasted for `Limits.stall_s`, each time it has doubled since, and when it is over. What the
    worker says of itself, like the rest of what comes from it.

    Args:
        pid: The worker's process id on the host.
        rollout_ids: The rollouts for which the blocking code runs, as far as that is known.
        where: File, line and function of that code.
        stack: The stack of the worker's main thread, innermost frame last.
        seconds: For how long.
        over: Whether the loop turns again.
        unreported: Stalls since the last report that came too close upon another to be told.
    """

    pid: int
    rollout_ids: tuple[str, ...]
    where: str
    stack: str
    seconds: float
    over: bool
    unreported: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreachableEvent:
    """Connections of workers to an endpoint cannot be made; told once for each reason.

    Args:
        endpoint: Host and port, as text.
        reason: Why not.
    """

    endpoint: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Watcher:
    """Who is told what a worker does outside of calls.

    Args:
        output: Something was logged or printed outside of rollouts.
        ended: Rollouts have run.
        death: The worker ended without having been asked to, or did not become ready. Told once.
        loaded: Which modules it loaded from source, once or twice; the paths are what the worker says.
        stalled: Its event loop does not turn, or does again.
    """

    output: Callable[[LogLine], None]
    ended: Callable[[tuple[str, ...]], None]
    death: Callable[[WorkerEnd], None]
    loaded: Callable[[list[str]], None]
    stalled: Callable[[StallEvent], None]


Event = PhaseEvent | OutputEvent | RolloutsEndedEvent | RecordEvent | WorkerEvent | StallEvent | UnreachableEvent
OnEvent = Callable[[Event], None]
