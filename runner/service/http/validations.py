"""Validations: asked for, looked at while they run, and what has come of them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated, Final, Literal

from fastapi import APIRouter, Header, Path, Query, Request
from sqlalchemy import Connection
from starlette.responses import Response, StreamingResponse

from runner.service.client.wire import (
    ID_PATTERN,
    OVER,
    Judgement,
    NewValidation,
    OptionFacts,
    State,
    Validation,
    ValidationPage,
)
from runner.service.database import jobs, uploads
from runner.service.database.rows import JobRow
from runner.service.http.access import Caller, Reader, Submitter
from runner.service.http.bounds import PAGE_ITEMS
from runner.service.http.errors import HttpError, errors, not_found
from runner.service.http.exchange import exchange_of
from runner.service.http.streams import EventStream
from runner.service.offer import UnknownModelError
from runner.service.offer import asked as model_for

if TYPE_CHECKING:
    from runner.service.blobs.store import BlobStore
    from runner.service.http.state import ServiceState

KIND: Final = "validation"

router = APIRouter(prefix="/api/v1/validations", tags=["validations"])

ValidationId = Annotated[str, Path(pattern=ID_PATTERN)]
_CURSOR: Final = r"^[0-9]{1,12}\.[0-9]{1,17}~[A-Za-z0-9_-]{1,64}$"
_TEXT: Final = r"^[^\x00-\x1f\x7f]*$"

ARTIFACT_HEADERS: Final = {
    # what a bundle has written is shown as a document of nobody's: no scripts of other origins, no cookies, no requests
    "Content-Security-Policy": (
        "sandbox allow-scripts allow-popups; default-src 'none'; script-src 'unsafe-inline'; "
        "style-src 'unsafe-inline'; img-src data:; font-src data:; form-action 'none'; base-uri 'none'; "
        "frame-ancestors 'self'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "private, no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
}
"""Of answers whose content came from a bundle."""


@router.post("", status_code=201, response_model=Validation, responses=errors(401, 403, 404, 409, 422))
async def create_validation(
    asked: NewValidation, caller: Submitter, request: Request, response: Response
) -> Validation:
    """Put a validation of uploaded files into the queue."""
    state: ServiceState = request.app.state.service
    limits = state.settings.limits
    _check(asked, limits.files, limits.rollout_s, limits.context_tokens)
    try:
        model_for(state.settings, asked.options.model)
    except UnknownModelError as error:
        raise _invalid("options.model", str(error)) from None

    def submit(connection: Connection) -> JobRow:
        job = jobs.submit(
            connection,
            tenant_id=caller.tenant_id,
            key_id=caller.key.id,
            kind=KIND,
            name=asked.name,
            spec=asked.options.model_dump(),
            inputs=_inputs(connection, caller, asked),
            max_attempts=state.settings.executors.attempts,
        )
        caller.audit(connection, "validation.create", job.id, detail=asked.name)
        return job

    job = await state.database.run(submit)
    response.headers["Location"] = f"{router.prefix}/{job.id}"
    return facts(job)


@router.get("", response_model=ValidationPage, responses=errors(401, 403, 422))
async def list_validations(
    caller: Reader,
    request: Request,
    state: Annotated[State | None, Query(description="Only those in this state.")] = None,
    judgement: Annotated[Judgement | None, Query(description="Only those with this judgement.")] = None,
    query: Annotated[
        str | None, Query(max_length=200, pattern=_TEXT, description="Only those with this in their name or id.")
    ] = None,
    before: Annotated[str | None, Query(pattern=_CURSOR, description="`next` of the page before.")] = None,
    limit: Annotated[int, Query(ge=1, le=PAGE_ITEMS, description="Items at most.")] = 50,
) -> ValidationPage:
    """List the tenant's validations, newest first."""
    service: ServiceState = request.app.state.service
    try:
        found = await service.database.read(
            jobs.page,
            caller.tenant_id,
            kind=KIND,
            state=state,
            judgement=judgement,
            query=query or None,
            before=before,
            limit=limit + 1,
        )
    except ValueError:
        raise HttpError(422, "invalid-request", "query.before: it is no `next` of a page.") from None
    shown = found[:limit]
    return ValidationPage(
        items=[facts(job) for job in shown], next=jobs.cursor(shown[-1]) if len(found) > limit else None
    )


@router.get("/{validation_id}", response_model=Validation, responses=errors(401, 403, 404, 422))
async def get_validation(validation_id: ValidationId, caller: Reader, request: Request) -> Validation:
    """Return one validation as it is now."""
    return facts(await _job(request.app.state.service, caller, validation_id))


@router.get(
    "/{validation_id}/events",
    response_class=Response,
    responses={
        **errors(401, 403, 404, 422),
        200: {
            "description": "Events, each with its number as `id`, its kind as `event` and JSON as `data`.",
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        },
        204: {"description": "The validation is over, and `after` is its last event."},
    },
)
async def watch_validation(
    validation_id: ValidationId,
    caller: Reader,
    request: Request,
    after: Annotated[int, Query(ge=0, le=1 << 53, description="Number of the last event that is known.")] = 0,
    last_event_id: Annotated[
        str, Header(pattern=r"^[0-9]{0,16}$", description="The same, as browsers send it; it counts for more.")
    ] = "",
) -> Response:
    """Follow a validation: what has happened since, and what happens, until its `end`."""
    state: ServiceState = request.app.state.service
    job = await _job(state, caller, validation_id)
    position = int(last_event_id) if last_event_id else after
    if job.state in OVER and position >= job.last_seq:
        # a browser that is told so does not come back
        return Response(status_code=204)
    return EventStream(state, caller, job, position)


@router.get(
    "/{validation_id}/verdict",
    response_class=Response,
    responses={
        **errors(401, 403, 404, 409, 410, 422),
        200: {"description": "The verdict.", "content": {"application/json": {"schema": {"type": "object"}}}},
    },
)
async def get_verdict(validation_id: ValidationId, caller: Reader, request: Request) -> Response:
    """Return the verdict, as `benchmax validate --json` prints it."""
    return await _artifact(request, caller, validation_id, "verdict", "application/json")


@router.get(
    "/{validation_id}/report",
    response_class=Response,
    responses={
        **errors(401, 403, 404, 409, 410, 422),
        200: {"description": "A page.", "content": {"text/html": {"schema": {"type": "string"}}}},
    },
)
async def get_report(validation_id: ValidationId, caller: Reader, request: Request) -> Response:
    """Return the report: a page that needs nothing else, and that may do nothing else."""
    return await _artifact(request, caller, validation_id, "report", "text/html; charset=utf-8")


@router.get(
    "/{validation_id}/logs",
    response_class=Response,
    responses={
        **errors(401, 403, 404, 409, 410, 422),
        200: {"description": "Text.", "content": {"text/plain": {"schema": {"type": "string"}}}},
    },
)
async def get_logs(validation_id: ValidationId, caller: Reader, request: Request) -> Response:
    """Return what was logged and printed."""
    return await _artifact(request, caller, validation_id, "logs", "text/plain; charset=utf-8")


@router.post("/{validation_id}/cancel", response_model=Validation, responses=errors(401, 403, 404, 422))
async def cancel_validation(validation_id: ValidationId, caller: Submitter, request: Request) -> Validation:
    """Have a validation end early; one that is over stays as it is."""
    state: ServiceState = request.app.state.service

    def cancel(connection: Connection) -> JobRow | None:
        found = jobs.get(connection, caller.tenant_id, validation_id)
        if found is None or found.kind != KIND:
            return None
        job = jobs.cancel(connection, caller.tenant_id, validation_id)
        caller.audit(connection, "validation.cancel", validation_id)
        return job

    job = await state.database.run(cancel)
    if job is None:
        raise not_found("such validation")
    return facts(job)


@router.delete("/{validation_id}", status_code=204, responses=errors(401, 403, 404, 409, 422))
async def delete_validation(validation_id: ValidationId, caller: Submitter, request: Request) -> None:
    """Delete a validation that is over, with everything that has come of it."""
    state: ServiceState = request.app.state.service

    def delete(connection: Connection) -> bool:
        found = jobs.get(connection, caller.tenant_id, validation_id)
        if found is None or found.kind != KIND or not jobs.delete(connection, caller.tenant_id, validation_id):
            return False
        caller.audit(connection, "validation.delete", validation_id)
        return True

    if not await state.database.run(delete):
        raise not_found("such validation")


def facts(job: JobRow) -> Validation:
    """Return a job as the API tells it."""
    return Validation(
        id=job.id,
        name=job.name,
        state=job.state,
        judgement=job.judgement,
        error=job.error or "",
        options=OptionFacts.model_validate(dict(job.spec)),
        attempts=job.attempts,
        cancelling=job.cancel_requested_at is not None and job.state not in OVER,
        last_seq=job.last_seq,
        created_at=job.created_at,
        started_at=job.started_at,
        ended_at=job.ended_at,
        has_verdict=job.verdict_blob is not None,
        has_report=job.report_blob is not None,
        has_logs=job.logs_blob is not None,
    )


def _check(asked: NewValidation, files: int, rollout_s: float, context_tokens: int) -> None:
    options = asked.options
    if len(asked.files) > files:
        raise _invalid("files", f"there may be {files}, not {len(asked.files)}")
    if options.timeout_s is not None and options.timeout_s > rollout_s:
        raise _invalid("options.timeout_s", f"it may be {rollout_s:g} at most")
    if options.max_context_tokens is not None and options.max_context_tokens > context_tokens:
        raise _invalid("options.max_context_tokens", f"it may be {context_tokens} at most")
    paths = [file.path for file in asked.files]
    if len(set(paths)) < len(paths):
        raise _invalid("files", "two have the same path")
    folders = {path[: found.start()] for path in paths for found in re.finditer("/", path)}
    if both := folders & set(paths):
        raise _invalid("files", f"{min(both)} would be both a file and a folder")


def _inputs(connection: Connection, caller: Caller, asked: NewValidation) -> dict[str, str]:
    """Return the digest of each input by its role.

    Raises:
        HttpError: an upload is not there, is another tenant's, or has no content yet.
    """
    wanted = {"pickle": asked.artifact.pickle, "metadata": asked.artifact.metadata}
    wanted |= {f"data/{file.path}": file.upload for file in asked.files}
    found: dict[str, str] = {}
    for role, upload_id in wanted.items():
        row = uploads.get(connection, caller.tenant_id, upload_id)
        if row is None:
            raise not_found(f"upload {upload_id}")
        if row.blob is None:
            raise HttpError(409, "upload-pending", f"the upload {upload_id} has no content yet.", "Send it first.")
        found[role] = row.blob
    return found


def _invalid(place: str, what: str) -> HttpError:
    return HttpError(422, "invalid-request", f"body.{place}: {what}.")


async def _job(state: ServiceState, caller: Caller, job_id: str) -> JobRow:
    job = await state.database.read(jobs.get, caller.tenant_id, job_id)
    if job is None or job.kind != KIND:
        raise not_found("such validation")
    return job


async def _artifact(
    request: Request, caller: Caller, job_id: str, role: Literal["verdict", "report", "logs"], media_type: str
) -> Response:
    state: ServiceState = request.app.state.service
    job = await _job(state, caller, job_id)
    digest = {"verdict": job.verdict_blob, "report": job.report_blob, "logs": job.logs_blob}[role]
    if digest is None:
        if job.state in OVER:
            raise HttpError(404, "not-found", f"the validation has no {role}.", f"It is {job.state}.")
        raise HttpError(409, "not-over", f"the validation has no {role} yet: it is {job.state}.", "Watch its events.")
    size = await state.blobs.size(digest)
    exchange_of(request).take_long()
    return StreamingResponse(
        _content(state.blobs, digest),
        headers={**ARTIFACT_HEADERS, "Content-Type": media_type, "Content-Length": str(size)},
    )


async def _content(blobs: BlobStore, digest: str) -> AsyncIterator[bytes]:
    async with contextlib.aclosing(blobs.open(digest)) as pieces:  # type: ignore[type-var]  # it is a generator
        async for piece in pieces:
            yield piece
