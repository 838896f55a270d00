"""Gets headers for this process itself, which sends a worker's requests on: as strictly as if the worker asked.

Comes in: requests, whose words may be the worker's. Goes out: headers, which stay here; every answer and refusal is in
the audit, and what was given out is known to the redactor before it is used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from benchmax.auth import ModelAuth
from runner.broker.audit import AuditTrail
from runner.broker.flight import Answer, Asker, Sources
from runner.broker.scope import CallScope, Grant
from runner.broker.source import StaticHeaders, tell_rejected
from runner.errors import HeadersRefusedError
from runner.limits import Limits
from runner.protocol import HeaderRequest
from runner.redaction import Redactor


class Clerk:
    """Asks credential sources for whoever sends requests on.

    Args:
        sources: Asks credential sources.
        trail: Told what became of each request.
        redactor: Learns every secret, before it is used.
        limits: How often and how long may be asked.
    """

    def __init__(self, sources: Sources, trail: AuditTrail, redactor: Redactor, limits: Limits) -> None:
        self._sources = sources
        self._trail = trail
        self._redactor = redactor
        self._limits = limits
        self._static = StaticHeaders()

    async def headers(self, scope: CallScope, request: HeaderRequest) -> dict[str, str]:
        """Return the headers of one request.

        Args:
            scope: The call that it is made in.
            request: As a worker would ask; its numbers are of no meaning.

        Raises:
            HeadersRefusedError: there are none; its subclasses and the text say why.
        """
        try:
            scope.count(request, self._limits.headers_per_rollout)
            grant = scope.decide(request)
            headers = self._static.of(grant.auth)
            if headers is None:
                headers = await self._asked(scope, grant)
                if not scope.still_allows(request):
                    raise HeadersRefusedError("the rollout ended before its headers were there.")
        except HeadersRefusedError as refusal:
            self._trail.refuse(request, refusal)
            raise
        self._redactor.learn_headers(headers)
        self._trail.note(request, "answered", "" if headers else "without any header")
        return headers

    def source(self, scope: CallScope, request: HeaderRequest) -> ModelAuth:
        """Return the source that a request's headers come from.

        Raises:
            HeadersRefusedError: the request is not covered any more.
        """
        return scope.decide(request).auth

    async def rejected(self, scope: CallScope, request: HeaderRequest, headers: Mapping[str, str]) -> bool:
        """Tell the source of a request that a server refused its headers; return whether it takes notice of that.

        A source may have a `rejected(context, headers)` beside its `headers_for_request`. One that raises, or takes
        too long, has failed: that is in the audit, and `False` is returned.
        """
        try:
            grant = scope.decide(request)
            telling = tell_rejected(
                grant.auth, grant.context(), dict(headers), self._sources.crew, blocking=grant.blocking
            )
            # as when it is asked: in the context of whoever made the call
            task = asyncio.get_running_loop().create_task(telling, context=scope.context.copy())
            async with asyncio.timeout(self._limits.headers_s):
                return await task
        except TimeoutError:
            self._trail.note(request, "failed", f"`rejected` did not end within {self._limits.headers_s:g} s.")
            return False
        except HeadersRefusedError as refusal:
            self._trail.refuse(request, refusal)
            return False

    async def _asked(self, scope: CallScope, grant: Grant) -> dict[str, str]:
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        def tell(answer: Answer) -> None:
            if not future.done():
                future.set_result(answer)

        asker = Asker(grant.context(), scope, self._limits.headers_s, tell)
        flight = self._sources.ask(grant.auth, asker, blocking=grant.blocking)
        try:
            answer = await future
        except asyncio.CancelledError:
            flight.leave(asker)
            raise
        if isinstance(answer, HeadersRefusedError):
            # told to everybody who waited, each of whom raises one of its own
            raise type(answer)(answer.message, hint=answer.hint, detail=answer.detail)
        return answer
