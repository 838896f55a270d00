"""Pages of validations: the list, a new one, and one of them while it runs and when it is over."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Final, Literal
from urllib.parse import urlencode

import msgspec
from fastapi import APIRouter, Query, Request
from starlette.responses import RedirectResponse, Response

from benchmax.bundle.findings.finding import Finding
from runner.report.page.validation import MAX_CHECKS, MAX_FINDINGS
from runner.report.value import BundleFacts, ModelFacts
from runner.service.client.wire import Judgement, State, ValidationPage
from runner.service.database.rows import KeyRow
from runner.service.http import validations as api
from runner.service.http.validations import ValidationId
from runner.service.offer import offered
from runner.service.web.rendering import render
from runner.service.web.results import verdict_json
from runner.service.web.routes import PageRoute
from runner.service.web.visiting import ReadingVisitor, SubmittingVisitor
from runner.validation.verdict import CheckFacts

if TYPE_CHECKING:
    from runner.service.http.state import ServiceState

router = APIRouter(include_in_schema=False, route_class=PageRoute)

ROWS: Final = 50
OTHERS: Final = 20
"""Validations that one can be compared with from its own page; the list offers them all."""

STATES: Final = (
    ("", "any state"),
    ("queued", "waiting"),
    ("running", "running"),
    ("done", "done"),
    ("failed", "failed"),
    ("cancelled", "cancelled"),
)
JUDGEMENTS: Final = (("", "any verdict"), ("valid", "valid"), ("invalid", "invalid"), ("unjudged", "not judged"))


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """What is shown of a verdict beside its report; the rest of its JSON, which may be large, is passed over."""

    findings: list[Finding] = []
    checks: list[CheckFacts] = []
    rollouts: int = 0
    benchmax: str = ""
    bundle: BundleFacts | None = None
    model: ModelFacts | None = None


@router.get("/validations")
async def get_validations(
    visitor: ReadingVisitor,
    request: Request,
    state: Literal[State, ""] = "",
    judgement: Literal[Judgement, ""] = "",
    query: Annotated[str, Query(max_length=200)] = "",
    before: Annotated[str, Query(pattern=r"^([0-9.e+-]{1,40}~[A-Za-z0-9_-]{1,64})?$")] = "",
) -> Response:
    """List validations, those that filters let through."""
    found: ValidationPage = await api.list_validations(
        visitor.caller,
        request,
        state=state or None,
        judgement=judgement or None,
        # a null byte is in no name, and PostgreSQL takes none
        query=query.replace("\0", "").strip() or None,
        before=before or None,
        limit=ROWS,
    )
    filters = {name: value for name, value in (("state", state), ("judgement", judgement), ("query", query)) if value}
    return render(
        request,
        "validations.html",
        visitor=visitor,
        items=found.items,
        older=f"/validations?{urlencode({**filters, 'before': found.next})}" if found.next else "",
        newest=f"/validations?{urlencode(filters)}" if before else "",
        states=STATES,
        judgements=JUDGEMENTS,
        state=state,
        judgement=judgement,
        query=query,
        filtered=bool(filters),
    )


@router.get("/validations/new")
async def get_new(visitor: SubmittingVisitor, request: Request) -> Response:
    """Show what a bundle is uploaded with."""
    service: ServiceState = request.app.state.service
    key: KeyRow = visitor.caller.key
    return render(
        request,
        "new.html",
        visitor=visitor,
        models=offered(service.settings),
        limits=service.settings.limits,
        public_url=service.settings.public_url,
        key=key,
    )


@router.get("/validations/{validation_id}")
async def get_validation(validation_id: ValidationId, visitor: ReadingVisitor, request: Request) -> Response:
    """Show one validation: what happens, or what has come of it."""
    validation = await api.get_validation(validation_id, visitor.caller, request)
    overview: Overview | None = None
    others: ValidationPage | None = None
    if validation.has_verdict:
        found = await verdict_json(validation_id, visitor.caller, request)
        if found is not None:
            overview = await asyncio.to_thread(msgspec.json.decode, found, type=Overview)
        others = await api.list_validations(visitor.caller, request, state="done", limit=OTHERS)
    return render(
        request,
        "validation.html",
        visitor=visitor,
        validation=validation,
        overview=overview,
        max_findings=MAX_FINDINGS,
        max_checks=MAX_CHECKS,
        others=[one for one in others.items if one.id != validation.id and one.has_verdict] if others else [],
    )


@router.post("/validations/{validation_id}/cancel")
async def cancel(validation_id: ValidationId, visitor: SubmittingVisitor, request: Request) -> Response:
    """Have a validation end early, and go on looking at it."""
    await api.cancel_validation(validation_id, visitor.caller, request)
    return RedirectResponse(f"/validations/{validation_id}", 303)


@router.post("/validations/{validation_id}/delete")
async def delete(validation_id: ValidationId, visitor: SubmittingVisitor, request: Request) -> Response:
    """Delete a validation that is over, and go back to the list."""
    await api.delete_validation(validation_id, visitor.caller, request)
    return RedirectResponse("/validations", 303)
