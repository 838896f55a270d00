"""The application: all routes behind the gate, and a description of them that is complete."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import compile_path

from runner.provision.wheel import own_version
from runner.service import platform, web
from runner.service.http import audit_routes, key_routes, operations, uploads, validations
from runner.service.http.errors import as_http, error_response
from runner.service.http.exchange import exchange_of
from runner.service.http.gate import Gate
from runner.service.http.state import ServiceState
from runner.service.settings import LimitSettings

ABOUT: Final = """Validates environments for language models that were packed with benchmax.

Every error has the same body, with a code to match on, and every answer has `X-Request-Id`. Times are seconds since
1970, sizes are bytes. What belongs to another tenant is not there."""

REQUEST_ID: Final = {
    "description": "Names the request in the service's log; one that the client sends is taken.",
    "schema": {"type": "string"},
}


def create_app(state: ServiceState) -> FastAPI:
    """Return the application.

    Args:
        state: The service's parts, open; whoever opened them closes them, after the application has ended.
    """

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await state.feed.aclose()

    app = _Described(
        title="benchmax",
        version=own_version(),
        description=ABOUT,
        # their pages load scripts from elsewhere
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        redirect_slashes=False,
    )
    app.state.service = state
    app.state.readiness = operations.Remembered()
    for part in (uploads, validations, key_routes, audit_routes, operations):
        app.include_router(part.router)
    for router in (*platform.routers(state), web.router()):
        app.include_router(router)
    for kind in (HTTPException, RequestValidationError):
        app.add_exception_handler(kind, _answer)
    app.add_middleware(Gate, state=state)
    return app


async def _answer(request: Request, raised: Exception) -> Response:
    """Answer what the framework would else answer in a shape of its own."""
    error = as_http(raised)
    assert error is not None
    if error.status_code == 405:
        error.headers = {"Allow": ", ".join(_methods_at(request))}
    exchange = exchange_of(request)
    exchange.code = error.code
    return error_response(error, exchange.path, exchange.id)


def _methods_at(request: Request) -> list[str]:
    """Return what is allowed at a path; the framework names the methods of the first route there only."""
    methods: set[str] = set()
    for path, operations_there in request.app.openapi()["paths"].items():
        pattern, _, _ = compile_path(path)
        if pattern.match(request.scope["path"]):
            methods |= {method.upper() for method in operations_there}
    return sorted(methods)


class _Described(FastAPI):
    """An application whose description has what every answer has."""

    def openapi(self) -> dict[str, Any]:
        """Return the description."""
        if self.openapi_schema is None:
            described = super().openapi()
            for path in described["paths"].values():
                for operation in path.values():
                    for answer in operation["responses"].values():
                        answer.setdefault("headers", {})["X-Request-Id"] = REQUEST_ID
            _narrow(described["components"]["schemas"], self.state.service.settings.limits)
            described["servers"] = [{"url": self.state.service.settings.public_url}]
        assert self.openapi_schema is not None
        return self.openapi_schema


def _narrow(schemas: dict[str, Any], limits: LimitSettings) -> None:
    """Write this server's own limits into the description; those of the shared types are what no server goes beyond."""
    options = schemas["ValidationOptions"]["properties"]
    schemas["NewUpload"]["properties"]["bytes"]["maximum"] = int(limits.upload_bytes)
    schemas["NewValidation"]["properties"]["files"]["maxItems"] = int(limits.files)
    for name, most in (("timeout_s", limits.rollout_s), ("max_context_tokens", int(limits.context_tokens))):
        number = next(kind for kind in options[name]["anyOf"] if "maximum" in kind)
        number["maximum"] = most
