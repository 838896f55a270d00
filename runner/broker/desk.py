"""One worker's way to the broker: holds it to its limits, and knows which of its requests still wait.

Comes in: header requests, each of which may be forged. Goes out: exactly one answer to each; a refusal is one too.
Refuses, as `FrameError`, to go on with a worker that cannot be meant to ask that much.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from runner.broker.audit import AuditTrail
from runner.broker.flight import Answer, Asker, Flight, Sources
from runner.broker.scope import CallScope
from runner.broker.source import StaticHeaders
from runner.errors import FrameError, HeaderLimitError, HeadersRefusedError
from runner.limits import HEADER_BURST_S, MAX_HEADER_DENIALS, MAX_HEADER_REQUESTS, MAX_ID_CHARS, Limits
from runner.protocol import AuthToWorker, HeaderRequest, Headers, HeadersRefused, RemoteFailure
from runner.redaction import Redactor
from runner.text import bounded


class HeaderDesk:
    """Answers the header requests of one worker.

    Args:
        sources: Asks credential sources.
        trail: Told what became of each request.
        redactor: Learns every secret that is handed out, before it is.
        scopes: The worker's calls in flight by number, always as they are now.
        limits: How often and how long may be asked.
        send: Sends an answer to the worker.
    """

    def __init__(
        self,
        sources: Sources,
        trail: AuditTrail,
        redactor: Redactor,
        scopes: Mapping[int, CallScope],
        limits: Limits,
        send: Callable[[AuthToWorker], None],
    ) -> None:
        self._sources = sources
        self._trail = trail
        self._redactor = redactor
        self._scopes = scopes
        self._limits = limits
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[_Waiting, None] = {}
        self._allowance = float(limits.headers_per_s * HEADER_BURST_S)
        self._allowed_at = self._loop.time()
        self._denials = 0
        self._static = StaticHeaders()

    @property
    def waiting(self) -> int:
        """Requests that are not answered yet."""
        return len(self._waiting)

    def ask(self, request: HeaderRequest) -> None:
        """Answer one request, now or when its source has.

        Raises:
            FrameError: too many of the worker's requests wait at once, or it goes on after being denied too often.
        """
        if len(self._waiting) >= MAX_HEADER_REQUESTS:
            raise FrameError(f"more than {MAX_HEADER_REQUESTS} header requests at once.")
        try:
            self._check_rate()
            scope = self._scopes.get(request.call)
            if scope is None:
                raise HeadersRefusedError("headers were asked for outside of any call in flight.")
            scope.count(request, self._limits.headers_per_rollout)
            grant = scope.decide(request)
            headers = self._static.of(grant.auth)
        except HeadersRefusedError as refusal:
            self._refuse(request, refusal)
            return
        if headers is not None:
            self._hand_out(request, headers, scope)
            return
        waiting = _Waiting(self, request, scope)
        self._waiting[waiting] = None
        waiting.asker = Asker(grant.context(), scope, self._limits.headers_s, waiting.tell)
        waiting.flight = self._sources.ask(grant.auth, waiting.asker, blocking=grant.blocking)

    def close(self) -> None:
        """Give up what waits: the worker is gone. Sources that nobody else waits for are cancelled. Harmless twice."""
        while self._waiting:
            waiting, _ = self._waiting.popitem()
            waiting.leave()

    def answer(self, waiting: _Waiting, answer: Answer) -> None:
        """Take in what a source said."""
        self._waiting.pop(waiting, None)
        request = waiting.request
        if not isinstance(answer, dict):
            self._refuse(request, answer)
        elif self._scopes.get(request.call) is not waiting.scope or not waiting.scope.still_allows(request):
            self._refuse(request, HeadersRefusedError("the call or rollout ended before its headers were there."))
        else:
            self._hand_out(request, answer, waiting.scope)

    def _check_rate(self) -> None:
        now, rate = self._loop.time(), self._limits.headers_per_s
        allowance = self._allowance + (now - self._allowed_at) * rate
        self._allowed_at = now
        self._allowance = min(allowance, rate * HEADER_BURST_S) - 1
        if self._allowance < 0:
            self._allowance = 0.0
            raise HeaderLimitError(
                f"the worker asks for headers more often than {rate} times per second.",
                hint="Raise limits.headers_per_s if that is meant.",
            )

    def _hand_out(self, request: HeaderRequest, headers: dict[str, str], scope: CallScope) -> None:
        self._redactor.learn_headers(headers)
        if not scope.stands_in:
            self._trail.note(request, "answered", "" if headers else "without any header")
        self._send(Headers(request=request.request, headers=headers))

    def _refuse(self, request: HeaderRequest, refusal: HeadersRefusedError) -> None:
        if isinstance(refusal, HeaderLimitError):
            self._denials += 1
            if self._denials > MAX_HEADER_DENIALS:
                raise FrameError(f"{MAX_HEADER_DENIALS} header requests were beyond a limit, and still it asks.")
        text = self._trail.refuse(request, refusal)
        failure = RemoteFailure(type=bounded(type(refusal).__name__, MAX_ID_CHARS), message=text)
        self._send(HeadersRefused(request=request.request, failure=failure))


@dataclass(slots=True, eq=False)
class _Waiting:
    """A request whose source has not answered."""

    desk: HeaderDesk
    request: HeaderRequest
    scope: CallScope
    asker: Asker | None = None
    flight: Flight | None = None

    def tell(self, answer: Answer) -> None:
        self.desk.answer(self, answer)

    def leave(self) -> None:
        if self.flight is not None and self.asker is not None:
            self.flight.leave(self.asker)
