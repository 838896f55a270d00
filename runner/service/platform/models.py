"""What answers the model calls of clients: servers of the service's own, started when first asked, and others' servers.

The calls go through one gateway, which is reached through the service's HTTP server.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping

from benchmax.auth import ModelAuth, ModelRequestContext
from runner.errors import RunnerError
from runner.gateway.app import Opening
from runner.gateway.exchange import Answer, ModelCall, Upstream, UpstreamError
from runner.gateway.faults import RefusedError
from runner.gateway.gateway import Gateway
from runner.gateway.http_upstream import HttpUpstream
from runner.limits import Limits
from runner.models import ModelChoice, SampleAuth
from runner.models.server import serving
from runner.provision import Cache
from runner.run import Anonymous
from runner.service.offer import Asked, UnknownModelError, asked
from runner.service.settings import Settings

Admission = Callable[[str], Awaitable[str | None]]
"""Says whose sessions a bearer opens, as the id of its key; `None` refuses it."""


class Models:
    """See the module. Belongs to the event loop in which it is first used.

    Args:
        settings: The service's.
        admission: Decides on who opens a session.
        clean: Takes secrets out of text.
    """

    def __init__(self, settings: Settings, admission: Admission, clean: Callable[[str], str]) -> None:
        self._settings = settings
        self._admission = admission
        self._limits = Limits()
        self.gateway = Gateway(self._limits, clean=clean, admit=self._admit, session_s=settings.limits.session_s)
        self._stack = contextlib.AsyncExitStack()
        self._starting: dict[ModelChoice, asyncio.Task[str]] = {}

    async def upstream(self, name: str) -> HttpUpstream:
        """Return what answers a model.

        Args:
            name: As a client wrote it.

        Raises:
            RefusedError: there is none of that name.
            UpstreamError: its server cannot be started.
        """
        try:
            found = asked(self._settings, name)
        except UnknownModelError as error:
            raise RefusedError(f"{error}.", code="model_not_found", status=404, param="model") from None
        return self.gateway.upstream(await self._base_url(found), Headers(_auth(found), name))

    async def _base_url(self, found: Asked) -> str:
        choice = found.choice
        if choice.base_url is not None:
            return choice.base_url
        starting = self._starting.get(choice)
        if starting is None or (starting.done() and starting.exception() is not None):
            starting = self._starting[choice] = asyncio.create_task(self._start(choice), name="benchmax-model")
        try:
            # whoever else waits for it goes on waiting when this client goes
            return await asyncio.shield(starting)
        except RunnerError as error:
            raise UpstreamError(f"the model is not there: {error.message}", code="upstream_unreachable") from error

    async def _start(self, choice: ModelChoice) -> str:
        announced = await self._stack.enter_async_context(serving(choice, cache=Cache(), limits=self._limits))
        return announced.base_url

    async def _admit(self, opening: Opening) -> Upstream | None:
        most = int(self._settings.limits.context_tokens)
        if opening.max_context_tokens is not None and opening.max_context_tokens > most:
            raise RefusedError(f"max_context_tokens may be at most {most}.", param="max_context_tokens")
        key_id = await self._admission(opening.bearer)
        if key_id is None:
            return None
        upstream = await self.upstream(opening.model)
        limit = int(self._settings.limits.sessions_per_key)
        mine = [one for one in self.gateway.sessions if isinstance(one.upstream, Owned)]
        if sum(one.upstream.key_id == key_id for one in mine if isinstance(one.upstream, Owned)) >= limit:
            raise RefusedError(
                f"this key has {limit} open sessions, as many as it may; collect or delete some.",
                code="too_many_sessions",
                status=429,
                retry=True,
            )
        return Owned(upstream, key_id)

    async def aclose(self) -> None:
        """End all sessions, and the servers that were started. Safe to call twice."""
        for session in self.gateway.sessions:
            await session.close()
        await self.gateway.aclose()
        for task in self._starting.values():
            task.cancel()
        if self._starting:
            await asyncio.wait([*self._starting.values()])
        self._starting.clear()
        await self._stack.aclose()


class Owned:
    """An upstream of a session that somebody's key has opened.

    Args:
        inner: Sends the calls.
        key_id: Whose key.
    """

    def __init__(self, inner: HttpUpstream, key_id: str) -> None:
        self._inner = inner
        self.key_id = key_id

    async def send(self, call: ModelCall) -> Answer:
        """Send one call on.

        Raises:
            UpstreamError: there is no answer.
        """
        return await self._inner.send(call)


class Headers:
    """The credentials of a model, for an `HttpUpstream`.

    Args:
        auth: Where they come from.
        model: The model's name.
    """

    def __init__(self, auth: ModelAuth, model: str) -> None:
        self._auth = auth
        self._model = model

    async def headers(self, call: ModelCall) -> Mapping[str, str]:
        """Return the headers to send with a call."""
        return await self._auth.headers_for_request(ModelRequestContext("", self._model, call.rollout_id))

    async def rejected(self, call: ModelCall, headers: Mapping[str, str]) -> bool:
        """Return that no others are worth a try: they come from the settings."""
        return False


def _auth(found: Asked) -> ModelAuth:
    if found.auth is not None:
        return found.auth
    return Anonymous() if found.choice.kind == "endpoint" else SampleAuth()
