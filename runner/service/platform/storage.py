"""Where the published client sends files: it asks for the URL of a path, and puts the bytes there.

A path belongs to the key's tenant; it is given back as it was, so that the client's own prefixes resolve by themselves.
"""

from __future__ import annotations

import datetime as dt
import re
from typing import Annotated, Final

from fastapi import APIRouter, Query
from pydantic import BaseModel
from sqlalchemy import Connection

from runner.errors import QuotaError
from runner.service.client.wire import MAX_PATH_CHARS, MIME_PATTERN
from runner.service.database import uploads
from runner.service.database.rows import UploadRow
from runner.service.http.access import Submitter, sign_upload
from runner.service.http.errors import HttpError
from runner.service.http.state import ServiceState

SEGMENT: Final = re.compile(r"[A-Za-z0-9._-]+")


class UploadUrl(BaseModel):
    """Where to put a file.

    Args:
        uploadUrl: Takes one PUT with the bytes, without any credential.
        blobPath: The file's path, for later requests.
        expiresAt: Until when, as ISO 8601 has it.
        willOverwrite: Whether there is a file at this path already.
    """

    uploadUrl: str  # noqa: N815 - as the client reads it
    blobPath: str  # noqa: N815
    expiresAt: str  # noqa: N815
    willOverwrite: bool  # noqa: N815


def is_path(text: str) -> bool:
    """Whether a text is a path that files can have: segments as the client makes them, joined by slashes."""
    segments = text.split("/")
    return len(text) <= MAX_PATH_CHARS and all(
        SEGMENT.fullmatch(segment) and segment not in (".", "..") for segment in segments
    )


def router(state: ServiceState) -> APIRouter:
    """Return the route."""
    # described by whoever made its client
    made = APIRouter(include_in_schema=False)

    @made.get("/v1/storage/upload-url")
    async def upload_url(
        caller: Submitter,
        path: Annotated[str, Query(max_length=MAX_PATH_CHARS)],
        mime: Annotated[str, Query(alias="mimeType", max_length=100, pattern=MIME_PATTERN)],
        minutes: Annotated[float | None, Query(alias="expiresInMinutes", gt=0, le=100_000)] = None,
    ) -> UploadUrl:
        """Give the URL of one upload."""
        if not is_path(path):
            raise HttpError(
                400,
                "bad-path",
                f"the path {path!r} cannot be stored.",
                "Its segments are letters, digits, '.', '_' and '-', joined by '/'.",
            )
        most = state.settings.limits.upload_url_s
        lifetime = most if minutes is None else min(minutes * 60, most)

        def create(connection: Connection) -> tuple[UploadRow | None, UploadRow]:
            before = uploads.latest(connection, caller.tenant_id, path)
            row = uploads.create(
                connection,
                tenant_id=caller.tenant_id,
                key_id=caller.key.id,
                path=path,
                mime=mime,
                lifetime_s=lifetime,
            )
            caller.audit(connection, "upload.create", row.id, detail=path)
            return before, row

        try:
            before, upload = await state.database.run(create)
        except QuotaError as error:
            raise HttpError(409, error.code, error.message, error.hint) from None
        return UploadUrl(
            uploadUrl=sign_upload(state, upload.id, upload.expires_at),
            blobPath=path,
            expiresAt=dt.datetime.fromtimestamp(upload.expires_at, dt.UTC).isoformat(),
            willOverwrite=before is not None,
        )

    return made
