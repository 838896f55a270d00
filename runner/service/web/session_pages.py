"""Signing in with a key, and out again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

from fastapi import APIRouter, Query, Request
from sqlalchemy import Connection
from starlette.responses import RedirectResponse, Response

from runner.service.database import keys, sessions
from runner.service.database.rows import KeyRow
from runner.service.http.access import Caller, cookie_name, denied, is_from_own_page
from runner.service.http.errors import HttpError
from runner.service.http.exchange import exchange_of
from runner.service.web.rendering import render
from runner.service.web.routes import PageRoute
from runner.service.web.visiting import AnyVisitor, inside, keep_session, read_form

if TYPE_CHECKING:
    from runner.service.http.state import ServiceState

router = APIRouter(include_in_schema=False, route_class=PageRoute)

MAX_KEY_CHARS: Final = 200


@router.get("/")
async def get_start(request: Request) -> Response:
    """Lead to the list, or to where one signs in."""
    state: ServiceState = request.app.state.service
    return RedirectResponse("/validations" if cookie_name(state) in request.cookies else "/sign-in", 303)


@router.get("/sign-in")
async def get_sign_in(request: Request, next: Annotated[str, Query(max_length=2000)] = "") -> Response:  # noqa: A002
    """Ask for a key."""
    return render(request, "sign_in.html", next=inside(next), problem="")


@router.post("/sign-in")
async def sign_in(request: Request) -> Response:
    """Begin a session of a key."""
    state: ServiceState = request.app.state.service
    exchange = exchange_of(request)
    if not is_from_own_page(state, request):
        error = HttpError(403, "foreign-page", "the request comes from a page that is not the service's own.")
        await denied(state, exchange, error.code)
        raise error
    form = await read_form(request)
    came_for = inside(form.one("next"))
    secret = form.one("key").strip()
    found = await state.database.read(keys.find, secret) if len(secret) <= MAX_KEY_CHARS else None
    if found is None:
        await denied(state, exchange, "unknown-key")
        problem = "That key is not known, has expired or was revoked."
        return render(request, "sign_in.html", status=403, next=came_for, problem=problem)
    lifetime_s = int(state.settings.limits.browser_session_s)
    caller = Caller(key=found, request_id=exchange.id, address=exchange.address)
    before = request.cookies.get(cookie_name(state))

    def begin(connection: Connection) -> str:
        if before is not None:
            sessions.end(connection, before)
        caller.audit(connection, "session.begin", found.id)
        return sessions.create(connection, found.id, lifetime_s=lifetime_s)

    token = await state.database.run(begin)
    exchange.key_id, exchange.tenant_id = found.id, found.tenant_id
    response = RedirectResponse(came_for, 303)
    keep_session(state, response, token, lifetime_s=lifetime_s)
    return response


@router.post("/sign-out")
async def sign_out(visitor: AnyVisitor, request: Request) -> Response:
    """End the session, here and in the database."""
    state: ServiceState = request.app.state.service
    key: KeyRow = visitor.caller.key

    def end(connection: Connection) -> None:
        sessions.end(connection, visitor.token)
        visitor.caller.audit(connection, "session.end", key.id)

    await state.database.run(end)
    response = RedirectResponse("/sign-in", 303)
    keep_session(state, response, None)
    return response
