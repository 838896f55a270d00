"""What lies in the blob store, by its digest; who refers to it is asked of the other tables."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import ColumnElement, Connection, exists, or_, select

from runner.errors import ConflictError
from runner.service.database.engine import insert_into
from runner.service.database.schema import blobs, job_blobs, jobs, now, uploads


def pin(connection: Connection, digest: str, size: int) -> None:
    """Announce content that is about to be put into the store: for some time from now, it is not removed.

    To be done, and committed, before whoever puts it looks whether it is there already. Then either it is removed
    before that look, or not at all.

    Args:
        connection: In a transaction.
        digest: SHA-256 in lower-case hex.
        size: Bytes.
    """
    connection.execute(
        insert_into(connection, blobs)
        .values(digest=digest, bytes=size, created_at=now())
        .on_conflict_do_update(index_elements=["digest"], set_={"created_at": now()})
    )


def refer(connection: Connection, digests: Collection[str]) -> None:
    """Keep content from being removed until the transaction ends, so that it can be referred to.

    Raises:
        ConflictError: it is not in the store: it was never announced, or has been removed.
    """
    wanted = sorted(set(digests))
    # in this order everywhere, so that two transactions do not wait for each other
    found = set(
        connection.execute(
            select(blobs.c.digest).where(blobs.c.digest.in_(wanted)).order_by(blobs.c.digest).with_for_update(read=True)
        ).scalars()
    )
    missing = [digest for digest in wanted if digest not in found]
    if missing:
        raise ConflictError(f"The content {missing[0]} is not there any more.", hint="Upload it again.")


def is_referred_to() -> ColumnElement[bool]:
    """Return the condition that an upload or a job refers to a blob."""
    columns: tuple[Any, ...] = (
        uploads.c.blob, job_blobs.c.digest, jobs.c.verdict_blob, jobs.c.report_blob, jobs.c.logs_blob,
    )  # fmt: skip
    return or_(*(exists().where(column == blobs.c.digest) for column in columns))
