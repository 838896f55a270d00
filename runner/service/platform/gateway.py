"""Model sessions of clients, and their plain model calls: both by the gateway that isolated environments have.

What is asked below `/sessions/{id}/v1` is shown the session's key. What is asked below `/v1` is shown a key of the
service; each such call is made in a session of its own, which nobody else can reach and which ends with it.
"""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter, Depends, Request
from fastapi.security import HTTPAuthorizationCredentials
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from runner.gateway.budget import Budget
from runner.gateway.exchange import Answer, ModelCall
from runner.gateway.session import CHAT, EMBEDDINGS, session_path
from runner.limits import Limits
from runner.service import job_token
from runner.service.database import jobs, settings
from runner.service.http.access import Allowed, ModelUser, denied
from runner.service.http.errors import HttpError
from runner.service.http.exchange import exchange_of
from runner.service.http.state import ServiceState
from runner.service.offer import offered
from runner.service.platform.models import Models

BINDING: Final = "client"
"""Name of what plain calls are made under: they are no conversation to train on."""


def router(state: ServiceState, models: Models) -> APIRouter:
    """Return the routes."""
    # described by whoever made their clients
    made = APIRouter(include_in_schema=False)
    asker = [Depends(Asker(state))]

    @made.get("/v1/models", dependencies=asker)
    async def list_models() -> dict[str, Any]:
        """List the models that can be asked, as OpenAI's API does."""
        listed = [
            {"id": name, "object": "model", "created": 0, "owned_by": "benchmax"} for name in offered(state.settings)
        ]
        return {"object": "list", "data": listed}

    @made.put("/v1/sessions/{session_id}")
    async def open_session(request: Request, session_id: str, caller: ModelUser) -> Response:
        """Open a session; the gateway reads what is asked for."""
        return Served(models, request)

    @made.api_route("/sessions/{rest:path}", methods=["GET", "POST", "PUT", "DELETE", "PATCH"])
    async def within_session(request: Request, rest: str) -> Response:
        """Answer what is asked with a session's key."""
        return Served(models, request)

    @made.post(f"/v1/{CHAT}", dependencies=asker)
    async def chat(request: Request) -> Response:
        """Answer one chat completion, whole or streamed."""
        return Plain(models, request, CHAT)

    @made.post(f"/v1/{EMBEDDINGS}", dependencies=asker)
    async def embeddings(request: Request) -> Response:
        """Embed texts."""
        return Plain(models, request, EMBEDDINGS)

    return made


class Asker:
    """Lets those through that have a key for models, or the token of a job that runs; a dependency of routes.

    Args:
        state: The service's parts.
    """

    def __init__(self, state: ServiceState) -> None:
        self._state = state
        self._secret: bytes | None = None
        self._by_key = Allowed("models")

    async def __call__(self, request: Request) -> None:
        """Let the request through.

        Raises:
            HttpError: it is of nobody who may.
        """
        scheme, _, shown = request.headers.get("authorization", "").partition(" ")
        shown = shown.strip() if scheme.lower() == "bearer" else ""
        if not shown.startswith(job_token.PREFIX):
            credentials = HTTPAuthorizationCredentials(scheme=scheme, credentials=shown) if shown else None
            await self._by_key(request, credentials)
            return
        state, exchange = self._state, exchange_of(request)
        if self._secret is None:
            self._secret = await state.database.run(settings.secret, job_token.SIGNED_WITH)
        job_id = job_token.job_of(self._secret, shown)
        job = None if job_id is None else await state.database.read(jobs.get, None, job_id)
        if job is None or job.state != "running":
            await denied(state, exchange, "unknown-token")
            raise HttpError(401, "unknown-token", "the token is of no job that runs.")
        exchange.key_id, exchange.tenant_id = job.key_id, job.tenant_id


class Served(Response):
    """An answer that the gateway gives.

    Args:
        models: Has the gateway.
        request: What is answered; its body is not read yet.
    """

    def __init__(self, models: Models, request: Request) -> None:
        super().__init__()
        self._models = models
        self._request = request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer."""
        exchange = exchange_of(self._request)
        # a model may take minutes; the gateway has bounds of its own
        exchange.take_long()
        exchange.max_body, exchange.body_s = Limits().request_bytes, None
        connection = scope["state"].get("connection")
        await self._serve(scope, receive, send, None if connection is None else connection.cut)

    async def _serve(self, scope: Scope, receive: Receive, send: Send, cut: Any) -> None:
        await self._models.gateway.serve(scope, receive, send, cut=cut)


class Plain(Served):
    """An answer to a call that is shown a key of the service; see the module.

    Args:
        models: Has the gateway.
        request: What is answered.
        route: What is asked, below the base URL.
    """

    def __init__(self, models: Models, request: Request, route: str) -> None:
        super().__init__(models, request)
        self._route = route

    async def _serve(self, scope: Scope, receive: Receive, send: Send, cut: Any) -> None:
        gateway = self._models.gateway
        session = gateway.open(
            gateway.free_id(exchange_of(self._request).id),
            Named(self._models),
            rollout_id="",
            binding=BINDING,
            budget=Budget(),
        )
        kept = [pair for pair in scope["headers"] if pair[0] != b"authorization"]
        headers = [*kept, (b"authorization", f"Bearer {session.key}".encode())]
        path = f"{session_path(session.id)}/{self._route}"
        try:
            await gateway.serve(
                {**scope, "path": path, "raw_path": path.encode(), "headers": headers}, receive, send, cut=cut
            )
        finally:
            await session.close()


class Named:
    """An upstream that is whatever answers the model that a call names.

    Args:
        models: What there is.
    """

    def __init__(self, models: Models) -> None:
        self._models = models

    async def send(self, call: ModelCall) -> Answer:
        """Send one call on.

        Raises:
            UpstreamError: there is no such model, or no answer.
        """
        name = call.document.get("model") if isinstance(call.document, dict) else None
        upstream = await self._models.upstream(name if isinstance(name, str) else "")
        return await upstream.send(call)
