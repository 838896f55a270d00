"""What models were asked and answered in a first pass, and the same answers given again in later ones.

Nothing of it leaves this process. A rollout's own call is given the recorded answer to the same request, else the one
that came at the same place. A question under a binding is given what the same question was answered, whoever asked it.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from runner.gateway.exchange import Answer, CallTrace, Exchange, ModelCall, Upstream, UpstreamError
from runner.limits import MIB
from runner.recording.comparing import Difference
from runner.recording.matching import Request
from runner.recording.traffic import RecordedCall, Recorder

JSON_HEADERS: Final = (("content-type", "application/json"), ("x-should-retry", "false"))
"""Of an answer that is made here. A client that is told not to try again saves the time that its patience takes."""


TAPE_BYTES: Final = 256 * MIB
"""Requests and answers of a pass that are kept: more than some conversations have, unless they are made to."""


class Switch:
    """An `Exchange` that leaves each session to whoever is set when it is opened."""

    def __init__(self, first: Exchange) -> None:
        self.current = first

    def upstream(self, rollout_id: str, binding: str | None, default: Upstream) -> Upstream:
        """Return what answers."""
        return self.current.upstream(rollout_id, binding, default)

    def finished(self, trace: CallTrace) -> None:
        """A call is over."""
        self.current.finished(trace)


class Through:
    """An `Exchange` that has every call go where it would go."""

    def upstream(self, rollout_id: str, binding: str | None, default: Upstream) -> Upstream:
        """Return `default`."""
        return default

    def finished(self, trace: CallTrace) -> None:
        """Do nothing."""


class Taping:
    """An `Exchange` that has every call go where it would go, and keeps it.

    Beyond `TAPE_BYTES` no more is asked: what could not be kept could not be given again.

    Args:
        clean: Takes secrets out of text.
        base_url: The model's.
    """

    def __init__(self, *, clean: Callable[[str], str], base_url: str) -> None:
        self._bytes = 0
        self.calls: list[RecordedCall] = []
        """What was asked and answered, in the order in which it was over."""
        self.bound: list[CallTrace] = []
        """How calls under bindings ended, without their bodies."""
        self._recorder = Recorder(self._keep, attempt=1, clean=clean)
        self._recorder.base_url = base_url

    def upstream(self, rollout_id: str, binding: str | None, default: Upstream) -> Upstream:
        """Return what passes calls on to `default` and keeps them."""
        return _Bounded(self, self._recorder.upstream(rollout_id, binding, default))

    def finished(self, trace: CallTrace) -> None:
        """Keep how a call under a binding ended."""
        if trace.call.binding is not None:
            # how it ended, not what was said
            self.bound.append(replace(trace, answer=b"", call=replace(trace.call, body=b"", document=None)))

    @property
    def full(self) -> bool:
        """Whether there is no room for another call."""
        return self._bytes > TAPE_BYTES

    def _keep(self, call: RecordedCall) -> None:
        self._bytes += len(bytes(call.request)) + len(bytes(call.answer))
        self.calls.append(call)

    def settle(self, rollout_ids: Iterable[str]) -> None:
        """Keep the calls of rollouts that are not over as they are now: the rollouts are."""
        for rollout_id in rollout_ids:
            self._recorder.settle(rollout_id)


class _Bounded:
    def __init__(self, tape: Taping, inner: Upstream) -> None:
        self._tape = tape
        self._inner = inner

    async def send(self, call: ModelCall) -> Answer:
        """Send a call on, if it can be kept.

        Raises:
            UpstreamError: there is no room for it, or no answer.
        """
        if self._tape.full:
            text = f"a validation keeps at most {TAPE_BYTES:,} bytes of model calls."
            raise UpstreamError(text, code="call_budget_exceeded", status=400)
        return await self._inner.send(call)


@dataclass(frozen=True, slots=True)
class Departure:
    """A request that is not the recorded one: whose, which, and where it differs; `None` if there is none recorded."""

    rollout_id: str
    number: int
    difference: Difference | None

    @property
    def text(self) -> str:
        """What it is, in words."""
        if self.difference is None:
            return f"{self.rollout_id} makes one more call, number {self.number}"
        where, first, second = self.difference.path, self.difference.first, self.difference.second
        return f"{self.rollout_id}, call {self.number}, at {where}: first {first}, then {second}"


class Playbacks:
    """What was recorded in a first pass, found by what was asked.

    Args:
        calls: What was recorded.
        base_url: The model's.
    """

    def __init__(self, calls: Iterable[RecordedCall], base_url: str) -> None:
        self._base_url = base_url
        self.own: dict[str, list[tuple[str, RecordedCall]]] = {}
        """Calls of rollouts' own models, each with its key."""
        self.bound: dict[tuple[str, str], list[RecordedCall]] = {}
        """Calls under bindings, by binding and key."""
        for call in sorted(calls, key=lambda call: call.number):
            key = _key(Request.recorded(call))
            if call.binding is None:
                self.own.setdefault(call.rollout_id, []).append((key, call))
            else:
                self.bound.setdefault((call.binding, key), []).append(call)

    def new(self, clean: Callable[[str], str]) -> Playback:
        """Make an exchange that answers as in the first pass.

        Args:
            clean: Takes the secrets of the environment that is to be answered out of text.
        """
        return Playback(self, lambda call: Request.of(call, self._base_url, clean))


class Playback:
    """An `Exchange` that answers as in a first pass. Made by `Playbacks.new`.

    Args:
        recorded: What was recorded.
        read: Takes what is compared from a call.
    """

    def __init__(self, recorded: Playbacks, read: Callable[[ModelCall], Request]) -> None:
        self._recorded = recorded
        self.read = read
        self.departures: list[Departure] = []
        """Requests of rollouts' own models that were not as recorded."""
        self.unanswered = 0
        """Questions under bindings that were not recorded, and had no answer from whoever is bound, either."""

    def upstream(self, rollout_id: str, binding: str | None, default: Upstream) -> Upstream:
        """Return what answers from the record; a binding's new questions go to `default`."""
        if binding is not None:
            return _Bound(self, self._recorded.bound, binding, rollout_id, default)
        return _Own(self, [*self._recorded.own.get(rollout_id, ())], rollout_id)

    def finished(self, trace: CallTrace) -> None:
        """Do nothing."""


class _Own:
    def __init__(self, playback: Playback, calls: list[tuple[str, RecordedCall]], rollout_id: str) -> None:
        self._playback = playback
        self._calls = calls
        self._rollout_id = rollout_id

    async def send(self, call: ModelCall) -> Answer:
        """Answer from the record.

        Raises:
            UpstreamError: all recorded calls have been used, or this one had no answer.
        """
        asked = self._playback.read(call)
        key = _key(asked)
        place = next((i for i, (recorded, _) in enumerate(self._calls) if recorded == key), None)
        if place is None:
            difference = Request.recorded(self._calls[0][1]).difference(asked) if self._calls else None
            self._playback.departures.append(Departure(self._rollout_id, call.number, difference))
            if not self._calls:
                raise UpstreamError("no further answer of the model was recorded.", code="replay_missing", status=400)
            place = 0
        return again(self._calls.pop(place)[1])


class _Bound:
    def __init__(
        self,
        playback: Playback,
        recorded: Mapping[tuple[str, str], Sequence[RecordedCall]],
        binding: str,
        rollout_id: str,
        default: Upstream,
    ) -> None:
        self._playback = playback
        self._recorded = recorded
        self._binding = binding
        self._rollout_id = rollout_id
        self._default = default
        self._used: dict[str, int] = {}

    async def send(self, call: ModelCall) -> Answer:
        """Answer as the same question was answered, first of all to the same rollout; a new one is asked.

        Raises:
            UpstreamError: there is no answer.
        """
        key = _key(self._playback.read(call))
        same = self._recorded.get((self._binding, key), ())
        if same:
            mine = [recorded for recorded in same if recorded.rollout_id == self._rollout_id] or same
            number = self._used[key] = self._used.get(key, -1) + 1
            return again(mine[min(number, len(mine) - 1)])
        try:
            answer = await self._default.send(call)
        except UpstreamError:
            self._playback.unanswered += 1
            raise
        self._playback.unanswered += answer.status >= 400
        return answer


def _key(request: Request) -> str:
    """Return what equal requests have in common, and different ones do not."""
    try:
        return f"{request.address} {json.dumps(request.document, sort_keys=True)}"
    except RecursionError:
        # nothing else than such a request is taken for one
        return f"{request.address} nested too deeply"


@dataclass(slots=True)
class Given:
    """An answer that is whole already.

    Args:
        status: HTTP status.
        headers: Headers for the client.
        data: The body.
        failure: What breaks off after it.
    """

    status: int
    headers: Sequence[tuple[str, str]]
    data: bytes
    failure: UpstreamError | None = None

    async def body(self) -> AsyncIterator[bytes]:
        """Give the body.

        Raises:
            UpstreamError: it broke off.
        """
        if self.data:
            yield self.data
        if self.failure is not None:
            raise self.failure

    async def aclose(self) -> None:
        """Do nothing: there is nothing to let go of."""

    @classmethod
    def of(cls, document: dict[str, Any], status: int = 200, *more: tuple[str, str]) -> Given:
        """Make an answer of a JSON object."""
        return cls(status, (*JSON_HEADERS, *more), json.dumps(document).encode())


def again(recorded: RecordedCall) -> Answer:
    """Answer as recorded; one that was not waited for is whole as far as it came.

    Raises:
        UpstreamError: there was no answer.
    """
    failure = recorded.failure
    error = None
    if failure is not None:
        error = UpstreamError(failure.message, code=failure.code, status=failure.status, retry=False)
    if recorded.status:
        return Given(recorded.status, recorded.headers, bytes(recorded.answer), error)
    raise error or UpstreamError("nobody waited for the recorded answer.", code="upstream_closed")
