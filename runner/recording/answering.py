"""Answers the model calls of a run from a record: without a network, without a key, and never with a guess."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Final

from runner.gateway.exchange import Answer, CallTrace, ModelCall, Upstream, UpstreamError
from runner.recording.journal import Lines
from runner.recording.matching import Key, Mismatch, RecordedCalls, listed_calls
from runner.recording.traffic import Clean, RecordedCall
from runner.report.replay import ReplayFinding

MISMATCH: Final = "replay_mismatch"
MISSING: Final = "replay_missing"

REFUSED_STATUS: Final = 400
"""What a client is answered that asks something else than was recorded: no client tries that again."""


class Replayer:
    """An `Exchange` that answers from recorded calls.

    Args:
        lines: The recorded calls.
        attempts: By rollout, the attempt whose calls count, as `listed_calls` takes them.
        clean: Takes secrets out of text.
        found: Told of each request that is not answered.

    Raises:
        UsageError: the calls cannot be read.
    """

    def __init__(
        self,
        lines: Lines[RecordedCall],
        attempts: Mapping[str, int],
        *,
        clean: Clean,
        found: Callable[[ReplayFinding], None],
    ) -> None:
        self._calls = {key: RecordedCalls(calls, lines, clean) for key, calls in listed_calls(lines, attempts).items()}
        self._nothing = RecordedCalls((), lines, clean)
        self._found = found
        self.base_url = ""
        """The model's, once it is known."""

    @property
    def unused(self) -> int:
        """Recorded calls that nothing asked for."""
        return sum(calls.unused for calls in self._calls.values())

    def upstream(self, rollout_id: str, binding: str | None, default: Upstream) -> Upstream:
        """Return what answers from the record; `default` is never asked."""
        calls = self._calls.get(Key(rollout_id, binding), self._nothing)
        return _ReplayUpstream(rollout_id, lambda call: calls.take(call, self.base_url), self._found)

    def finished(self, trace: CallTrace) -> None:
        """Do nothing: what did not fit has been told when it was asked."""


class _ReplayUpstream:
    def __init__(
        self,
        rollout_id: str,
        take: Callable[[ModelCall], RecordedCall | Mismatch | None],
        found: Callable[[ReplayFinding], None],
    ) -> None:
        self._rollout_id = rollout_id
        self._take = take
        self._found = found

    async def send(self, call: ModelCall) -> Answer:
        """Answer from the record.

        Raises:
            UpstreamError: the request is not in the record, or was answered by one there.
        """
        recorded = self._take(call)
        if not isinstance(recorded, RecordedCall):
            finding = self._finding(call, recorded)
            self._found(finding)
            raise UpstreamError(finding.message, code=finding.code, status=REFUSED_STATUS, retry=False)
        if not recorded.status:
            if recorded.failure is None:
                await _never()
            raise _failure(recorded)
        return _RecordedAnswer(recorded)

    def _finding(self, call: ModelCall, mismatch: Mismatch | None) -> ReplayFinding:
        who = f"model call {call.number}" + ("" if call.binding is None else f" under the binding {call.binding}")
        if mismatch is None:
            return ReplayFinding(
                code=MISSING,
                rollout_id=self._rollout_id,
                binding=call.binding,
                number=call.number,
                message=f"{who} ({call.method} {call.route}) is not in the record: all recorded calls have been used.",
            )
        number, difference = mismatch
        return ReplayFinding(
            code=MISMATCH,
            rollout_id=self._rollout_id,
            binding=call.binding,
            number=call.number,
            message=f"{who} differs from the recorded call {number} at {difference.path}: "
            f"recorded {difference.first}, now {difference.second}.",
            path=difference.path,
            recorded=difference.first,
            now=difference.second,
        )


class _RecordedAnswer:
    def __init__(self, recorded: RecordedCall) -> None:
        self._recorded = recorded
        self.status = recorded.status
        self.headers: Sequence[tuple[str, str]] = recorded.headers

    async def body(self) -> AsyncGenerator[bytes, None]:
        """Give the body as it was recorded.

        Raises:
            UpstreamError: it broke off when it was recorded.
        """
        data = bytes(self._recorded.answer)
        if data:
            yield data
        if self._recorded.failure is not None:
            raise _failure(self._recorded)
        if self._recorded.cut:
            await _never()

    async def aclose(self) -> None:
        """Do nothing: there is nothing to let go of."""


def _failure(recorded: RecordedCall) -> UpstreamError:
    failure = recorded.failure
    assert failure is not None
    return UpstreamError(failure.message, code=failure.code, status=failure.status, retry=failure.retry)


async def _never() -> None:
    """Wait as whoever asked did: until its patience, or its rollout's time, is at its end."""
    await asyncio.get_running_loop().create_future()
