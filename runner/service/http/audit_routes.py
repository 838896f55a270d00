"""The audit of a tenant: every change, and every access by one of its keys that was denied."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Query, Request

from runner.service.client.wire import AuditEntry, AuditPage
from runner.service.database import audit
from runner.service.http.access import Administrator
from runner.service.http.bounds import PAGE_ITEMS
from runner.service.http.errors import errors

if TYPE_CHECKING:
    from runner.service.http.state import ServiceState

router = APIRouter(prefix="/api/v1", tags=["audit"])


@router.get("/audit", response_model=AuditPage, responses=errors(401, 403, 422))
async def list_audit(
    caller: Administrator,
    request: Request,
    before: Annotated[int | None, Query(ge=0, le=1 << 53, description="`next` of the page before.")] = None,
    limit: Annotated[int, Query(ge=1, le=PAGE_ITEMS, description="Items at most.")] = 50,
) -> AuditPage:
    """List what has happened, newest first."""
    state: ServiceState = request.app.state.service
    found = await state.database.read(audit.page, caller.tenant_id, before=before, limit=limit + 1)
    shown = found[:limit]
    return AuditPage(
        items=[AuditEntry.model_validate(dataclasses.asdict(row)) for row in shown],
        next=shown[-1].id if len(found) > limit else None,
    )
