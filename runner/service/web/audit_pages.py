"""The page that says who did what."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from runner.service.http import audit_routes, key_routes
from runner.service.web.rendering import render
from runner.service.web.routes import PageRoute
from runner.service.web.visiting import AdminVisitor

router = APIRouter(include_in_schema=False, route_class=PageRoute)

ROWS: Final = 100


@router.get("/audit")
async def get_audit(
    visitor: AdminVisitor, request: Request, before: Annotated[int | None, Query(ge=0, le=1 << 53)] = None
) -> Response:
    """Show what was changed, and what was denied, newest first."""
    found = await audit_routes.list_audit(visitor.caller, request, before=before, limit=ROWS)
    keys = await key_routes.list_keys(visitor.caller, request)
    return render(
        request,
        "audit.html",
        visitor=visitor,
        items=found.items,
        next=found.next,
        paged=before is not None,
        names={key.id: key.name for key in keys.items},
    )
