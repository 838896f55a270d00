"""Uploads: announced with a quota taken, then stored; the newest stored one of a path is the one that counts."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Row, func, insert, select, update

from runner.errors import ConflictError, QuotaError
from runner.service.database import blobs, keys
from runner.service.database.rows import UploadRow
from runner.service.database.schema import new_id, now, uploads


def create(
    connection: Connection,
    *,
    tenant_id: str,
    key_id: str,
    path: str,
    mime: str,
    lifetime_s: float,
    expected_bytes: int | None = None,
    expected_sha256: str | None = None,
) -> UploadRow:
    """Announce an upload; the bytes it names are taken from the key's quota until it is stored or its time is over.

    Args:
        connection: In a transaction.
        tenant_id: Whose it is.
        key_id: Whose quota it takes.
        path: Where it goes.
        mime: Its type.
        lifetime_s: How long it may wait for its content.
        expected_bytes: Its size, as far as it is known.
        expected_sha256: Its digest, as far as it is known.

    Raises:
        QuotaError: the key has no room for it.
        ConflictError: there is no such key.
    """
    _take(connection, key_id, expected_bytes or 0)
    created = connection.execute(
        insert(uploads)
        .values(
            id=new_id("upl"),
            tenant_id=tenant_id,
            key_id=key_id,
            path=path,
            mime=mime,
            state="pending",
            expected_bytes=expected_bytes,
            expected_sha256=expected_sha256,
            created_at=now(),
            expires_at=now() + lifetime_s,
        )
        .returning(uploads)
    ).one()
    return _upload(created)


def get(connection: Connection, tenant_id: str, upload_id: str) -> UploadRow | None:
    """Return an upload of a tenant."""
    found = connection.execute(
        select(uploads).where(uploads.c.id == upload_id, uploads.c.tenant_id == tenant_id)
    ).one_or_none()
    return None if found is None else _upload(found)


def find(connection: Connection, upload_id: str) -> UploadRow | None:
    """Return an upload, whosever it is: for who comes with a signed URL instead of a key."""
    found = connection.execute(select(uploads).where(uploads.c.id == upload_id)).one_or_none()
    return None if found is None else _upload(found)


def stored(connection: Connection, upload_id: str, digest: str, size: int) -> UploadRow:
    """Note that an upload's content is in the store. Noting the same again changes nothing.

    An upload that waits may be stored also when its time is over: it began in time.

    Args:
        connection: In a transaction.
        upload_id: The upload.
        digest: SHA-256 in lower-case hex; it was announced by `blobs.pin`.
        size: Bytes.

    Raises:
        ConflictError: the upload is gone, was stored with other content, announced another digest or size, or the
            content was removed since it was announced.
        QuotaError: the key has no room for it.
    """
    found = connection.execute(select(uploads).where(uploads.c.id == upload_id).with_for_update()).one_or_none()
    if found is None:
        raise ConflictError("The upload is over.", hint="Ask for a new one.")
    if found.state == "stored":
        if found.blob == digest:
            return _upload(found)
        raise ConflictError("The upload was stored already, with other content.", hint="Ask for a new one.")
    for what, expected, came in (
        ("bytes", found.expected_bytes, size),
        ("SHA-256", found.expected_sha256, digest),
    ):
        if expected is not None and expected != came:
            raise ConflictError(f"The upload has other {what} than announced: {came} instead of {expected}.")
    blobs.refer(connection, [digest])
    changed = connection.execute(
        update(uploads)
        .where(uploads.c.id == upload_id)
        .values(state="stored", blob=digest, bytes=size, stored_at=now())
        .returning(uploads)
    ).one()
    # what was announced is taken already, unless the time it was taken for is over
    _take(connection, found.key_id, 0)
    return _upload(changed)


def latest(connection: Connection, tenant_id: str, path: str) -> UploadRow | None:
    """Return the newest stored upload of a path."""
    found = connection.execute(
        select(uploads)
        .where(uploads.c.tenant_id == tenant_id, uploads.c.path == path, uploads.c.state == "stored")
        .order_by(uploads.c.stored_at.desc(), uploads.c.id.desc())
        .limit(1)
    ).one_or_none()
    return None if found is None else _upload(found)


def below(connection: Connection, tenant_id: str, prefix: str) -> list[UploadRow]:
    """Return the newest stored upload of each path below a prefix, by path.

    Args:
        connection: In a transaction.
        tenant_id: Whose uploads.
        prefix: With or without the slash that follows it; `a/b` has `a/b/c` below it, and neither `a/b` nor `a/bc`.
    """
    start = f"{prefix.rstrip('/')}/"
    newest = (
        select(
            uploads.c.id,
            func.row_number()
            .over(partition_by=uploads.c.path, order_by=(uploads.c.stored_at.desc(), uploads.c.id.desc()))
            .label("place"),
        )
        .where(
            uploads.c.tenant_id == tenant_id,
            uploads.c.state == "stored",
            func.substr(uploads.c.path, 1, len(start)) == start,
        )
        .subquery()
    )
    rows = connection.execute(select(uploads).join(newest, newest.c.id == uploads.c.id).where(newest.c.place == 1))
    return sorted((_upload(row) for row in rows), key=lambda row: row.path)


def _take(connection: Connection, key_id: str, size: int) -> None:
    key = keys.hold(connection, key_id)
    if key is None:
        raise ConflictError("There is no such key.")
    taken = keys.usage(connection, key_id).bytes
    if taken + size > key.max_bytes:
        raise QuotaError(
            f"The upload is more than the key may keep: {taken + size:,} of {key.max_bytes:,} bytes.",
            which="bytes",
            limit=key.max_bytes,
            hint="Uploads are removed when they are older than the service keeps them.",
        )


def _upload(row: Row[Any]) -> UploadRow:
    return UploadRow(**row._mapping)
