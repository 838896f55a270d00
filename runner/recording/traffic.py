"""Keeps what models answered: each call of a recorded run as it left for its server, and as the answer came back.

What is kept is what lies between the gateway and the server. What the gateway itself answers, such as a budget that is
used up, it answers again when the run is replayed, from the same limits.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Sequence

import msgspec

from runner.gateway.exchange import Answer, CallTrace, ModelCall, Upstream, UpstreamError
from runner.recording.octets import Octets

Clean = Callable[[str], str]


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Why there is no answer, or only a part of one; as `UpstreamError` has it."""

    message: str
    code: str
    status: int
    retry: bool


class RecordedCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One model call: a line of `calls.jsonl`.

    Args:
        attempt: Which attempt at the run made it, from 1.
        rollout_id: The rollout, or what stands for the call that it belongs to.
        binding: Name of the binding; `None` for the rollout's own model.
        number: Its place in its session, from 0.
        method: `GET` or `POST`.
        route: Below the base URL: `chat/completions`, `embeddings`, `models`.
        url: The whole address where the client asked one of its own choice, as `address_of` has it.
        request: The request's body.
        began: When it was sent on, in seconds since 1970.
        seconds: Until the end of the answer.
        status: HTTP status of the answer; 0 when there was none.
        headers: The answer's headers.
        answer: Its body, as far as it came.
        failure: Why it is missing or not whole, when that was the server's side.
        cut: Whether whoever asked did not wait for its end.
    """

    attempt: int
    rollout_id: str
    binding: str | None = None
    number: int
    method: str
    route: str
    url: str | None = None
    request: Octets = Octets()
    began: float
    seconds: float
    status: int = 0
    headers: list[tuple[str, str]] = []
    answer: Octets = Octets()
    failure: Failure | None = None
    cut: bool = False


class Recorder:
    """An `Exchange` that has every call go where it would go, and keeps it.

    Args:
        keep: Takes each call that is over; must not raise.
        attempt: Number of the attempt at the run.
        clean: Takes secrets out of text.
    """

    def __init__(self, keep: Callable[[RecordedCall], None], *, attempt: int, clean: Clean) -> None:
        self._keep = keep
        self._attempt = attempt
        self._clean = clean
        self._open: dict[str, set[_OpenCall]] = {}
        self.base_url = ""
        """The model's, once it is known: benchmax's own servers are at another port each time."""

    def upstream(self, rollout_id: str, binding: str | None, default: Upstream) -> Upstream:
        """Return what passes calls on to `default` and keeps them."""
        return _RecordingUpstream(self, rollout_id, binding, default)

    def finished(self, trace: CallTrace) -> None:
        """Do nothing: a call is kept when its answer is whole, which is before the client has all of it."""

    def settle(self, rollout_id: str) -> None:
        """Keep the calls of a rollout that are not over as they are now: the rollout itself is.

        A client that has read the last event of a stream need not wait for the stream's end.
        """
        for call in tuple(self._open.get(rollout_id, ())):
            call.end(cut=True)

    def begin(self, call: ModelCall, rollout_id: str, binding: str | None) -> _OpenCall:
        """Note that a call is under way."""
        under_way = _OpenCall(call, rollout_id, binding, self._end)
        self._open.setdefault(rollout_id, set()).add(under_way)
        return under_way

    def _end(self, ended: _OpenCall) -> None:
        others = self._open[ended.rollout_id]
        others.discard(ended)
        if not others:
            del self._open[ended.rollout_id]
        clean, call = self._clean, ended.call
        failure = ended.failure
        self._keep(
            RecordedCall(
                attempt=self._attempt,
                rollout_id=ended.rollout_id,
                binding=ended.binding,
                number=call.number,
                method=call.method,
                route=clean(call.route),
                url=None if call.url is None else clean(address_of(call.url, self.base_url)),
                request=Octets.of(call.body, clean),
                began=ended.began,
                seconds=round(time.monotonic() - ended.started, 6),
                status=ended.status,
                headers=[(name, clean(value)) for name, value in ended.headers],
                answer=Octets.of(b"".join(ended.pieces), clean),
                failure=None if failure is None else msgspec.structs.replace(failure, message=clean(failure.message)),
                cut=ended.cut,
            )
        )


def address_of(url: str, base_url: str) -> str:
    """Return an address as it is compared: at the model's own server without the place of that."""
    below = url.removeprefix(base_url.rstrip("/")) if base_url else url
    return url if below == url else f"model:{below}"


class _OpenCall:
    """A call that is not over, and what has come of its answer."""

    def __init__(
        self, call: ModelCall, rollout_id: str, binding: str | None, on_end: Callable[[_OpenCall], None]
    ) -> None:
        self.call = call
        self.rollout_id = rollout_id
        self.binding = binding
        self.began = time.time()
        self.started = time.monotonic()
        self.status = 0
        self.headers: Sequence[tuple[str, str]] = ()
        self.pieces: list[bytes] = []
        self.failure: Failure | None = None
        self.cut = False
        self._on_end: Callable[[_OpenCall], None] | None = on_end

    def end(self, error: UpstreamError | None = None, *, cut: bool = False) -> None:
        """It is over, with what there is; only the first time counts."""
        if self._on_end is None:
            return
        on_end, self._on_end = self._on_end, None
        self.cut = cut
        if error is not None:
            self.failure = Failure(message=error.message, code=error.code, status=error.status, retry=error.retry)
        on_end(self)


class _RecordingUpstream:
    """Passes calls on, and keeps what becomes of them."""

    def __init__(self, recorder: Recorder, rollout_id: str, binding: str | None, default: Upstream) -> None:
        self._recorder = recorder
        self._rollout_id = rollout_id
        self._binding = binding
        self._default = default

    async def send(self, call: ModelCall) -> Answer:
        """Send one call on.

        Raises:
            UpstreamError: as the default one does.
        """
        under_way = self._recorder.begin(call, self._rollout_id, self._binding)
        try:
            answer = await self._default.send(call)
        except UpstreamError as error:
            under_way.end(error)
            raise
        except BaseException:
            under_way.end(cut=True)
            raise
        under_way.status, under_way.headers = answer.status, answer.headers
        return _RecordedAnswer(answer, under_way)


class _RecordedAnswer:
    """An answer whose body is kept while it is passed on."""

    def __init__(self, answer: Answer, under_way: _OpenCall) -> None:
        self._answer = answer
        self._call = under_way
        self.status = answer.status
        self.headers = answer.headers

    async def body(self) -> AsyncGenerator[bytes, None]:
        """Give the body.

        Raises:
            UpstreamError: it broke off.
        """
        try:
            async for piece in self._answer.body():
                self._call.pieces.append(piece)
                yield piece
        except UpstreamError as error:
            self._call.end(error)
            raise
        except BaseException:
            self._call.end(cut=True)
            raise
        self._call.end()

    async def aclose(self) -> None:
        """Let go of it; harmless twice."""
        self._call.end(cut=True)
        await self._answer.aclose()
