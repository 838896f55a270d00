"""Uploads: a place is asked for with a key, and the content is sent to a signed URL, streamed into the blob store."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Path, Query, Request
from sqlalchemy import Connection, select

from runner.service.blobs.store import Blob, DigestMismatchError, TooLargeError
from runner.service.client.wire import ID_PATTERN, NewUpload, Upload, UploadPlace
from runner.service.database import audit, blobs, uploads
from runner.service.database.rows import UploadRow
from runner.service.database.schema import now
from runner.service.http.access import Submitter, check_signature, denied, sign_upload
from runner.service.http.errors import HttpError, busy, errors, not_found
from runner.service.http.exchange import Exchange, exchange_of

if TYPE_CHECKING:
    from runner.service.http.state import ServiceState

router = APIRouter(prefix="/api/v1/uploads", tags=["uploads"])


@router.post("", status_code=201, response_model=UploadPlace, responses=errors(401, 403, 409, 422))
async def create_upload(asked: NewUpload, caller: Submitter, request: Request) -> UploadPlace:
    """Ask for a place to send one file to. Its size counts among the key's bytes from now on."""
    state: ServiceState = request.app.state.service
    limits = state.settings.limits
    if asked.bytes > limits.upload_bytes:
        raise HttpError(
            422, "invalid-request", f"body.bytes: a file may have {limits.upload_bytes} bytes, not {asked.bytes}."
        )

    def create(connection: Connection) -> UploadRow:
        row = uploads.create(
            connection,
            tenant_id=caller.tenant_id,
            key_id=caller.key.id,
            path=asked.path,
            mime=asked.mime,
            lifetime_s=limits.upload_url_s,
            expected_bytes=asked.bytes,
            expected_sha256=asked.sha256,
        )
        caller.audit(connection, "upload.create", row.id, detail=asked.path)
        return row

    row = await state.database.run(create)
    return UploadPlace(id=row.id, url=sign_upload(state, row.id, row.expires_at), expires_at=row.expires_at)


@router.put(
    "/{upload_id}/content",
    status_code=201,
    response_model=Upload,
    responses=errors(403, 404, 409, 422),
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        }
    },
)
async def put_content(
    upload_id: Annotated[str, Path(pattern=ID_PATTERN)],
    expires: Annotated[str, Query(max_length=12, pattern=r"^[0-9]+$", description="As the URL has it.")],
    signature: Annotated[str, Query(max_length=64, pattern=r"^[0-9a-f]+$", description="As the URL has it.")],
    request: Request,
) -> Upload:
    """Send a file's content to the URL that `POST /uploads` gave, as it stands; no key is wanted."""
    state: ServiceState = request.app.state.service
    exchange = exchange_of(request)
    row, moment = await state.database.read(_find, upload_id)
    try:
        check_signature(state, upload_id, expires, signature, now=moment)
    except HttpError as error:
        await denied(state, exchange, error.code, object_id=upload_id)
        raise
    if row is None:
        raise not_found("such upload any more")
    exchange.key_id, exchange.tenant_id = row.key_id, row.tenant_id
    if row.state == "stored":
        raise HttpError(409, "already-stored", "the upload has its content already.", "Ask for a new one.")
    with _receiving(state, upload_id):
        exchange.take_long()
        stored = await _receive(state, exchange, request, row)
    assert stored.blob is not None
    assert stored.bytes is not None
    assert stored.stored_at is not None
    state.metrics.uploaded.inc(stored.bytes)
    return Upload(
        id=stored.id,
        path=stored.path,
        mime=stored.mime,
        bytes=stored.bytes,
        sha256=stored.blob,
        stored_at=stored.stored_at,
    )


async def _receive(state: ServiceState, exchange: Exchange, request: Request, row: UploadRow) -> UploadRow:
    most = state.settings.limits.upload_bytes if row.expected_bytes is None else row.expected_bytes
    exchange.max_body, exchange.body_s = most, None
    announced = request.headers.get("content-length")
    if announced is not None and row.expected_bytes is not None and int(announced) < row.expected_bytes:
        raise _truncated(int(announced), row.expected_bytes)

    async def pin(blob: Blob) -> None:
        if row.expected_bytes is not None and blob.bytes != row.expected_bytes:
            raise _truncated(blob.bytes, row.expected_bytes)
        await state.database.run(blobs.pin, blob.digest, blob.bytes)

    def note(connection: Connection) -> UploadRow:
        stored = uploads.stored(connection, row.id, blob.digest, blob.bytes)
        audit.write(
            connection,
            tenant_id=row.tenant_id,
            key_id=row.key_id,
            action="upload.store",
            object=row.id,
            outcome="ok",
            request_id=exchange.id,
            address=exchange.address,
            detail=f"{blob.bytes} bytes",
        )
        return stored

    try:
        blob = await state.blobs.put(_body(request), max_bytes=most, expected_sha256=row.expected_sha256, pin=pin)
    except TooLargeError:
        raise HttpError(413, "too-large", f"the upload has more than {most} bytes.") from None
    except DigestMismatchError as error:
        raise HttpError(400, "wrong-digest", f"{error}.", "Send it again, to a new place.") from None
    return await state.database.run(note)


def _truncated(size: int, expected: int) -> HttpError:
    return HttpError(400, "truncated", f"the upload has {size} bytes and was announced with {expected}.")


async def _body(request: Request) -> AsyncIterator[bytes]:
    """Give the body's pieces.

    Raises:
        ConnectionAbortedError: the client has gone in the middle.
    """
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ConnectionAbortedError
        if message.get("body"):
            yield message["body"]
        if not message.get("more_body", False):
            return


def _find(connection: Connection, upload_id: str) -> tuple[UploadRow | None, float]:
    return uploads.find(connection, upload_id), connection.execute(select(now())).scalar_one()


@contextlib.contextmanager
def _receiving(state: ServiceState, upload_id: str) -> Iterator[None]:
    if upload_id in state.receiving:
        raise HttpError(409, "in-progress", "the upload's content is being sent already.")
    if len(state.receiving) >= state.settings.limits.uploads_at_once:
        raise busy("uploads")
    state.receiving.add(upload_id)
    state.metrics.uploads.inc()
    try:
        yield
    finally:
        state.receiving.discard(upload_id)
        state.metrics.uploads.dec()
