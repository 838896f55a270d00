"""What has grown old is deleted, and content that nothing refers to any more is removed from the store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, Table, delete, or_, select

from runner.service.database import blobs
from runner.service.database.schema import audit, browser_sessions, executors, jobs, now, uploads
from runner.service.database.schema import blobs as blob_table

AT_ONCE: Final = 1000
"""Rows of a table deleted by one transaction; what is left waits for the next."""

REMOVED_AT_ONCE: Final = 100
"""Content removed by one transaction: meanwhile nobody else can write to a SQLite database."""

EXECUTOR_S: Final = 86_400.0
"""How long an executor that is not heard of any more is remembered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How long things are kept, in seconds.

    Args:
        jobs_s: Jobs, from their end.
        uploads_s: Uploads, from the moment at which they were stored.
        audit_s: Rows of the audit trail.
        grace_s: Content that nothing refers to, from the moment at which it was last announced; longer than it takes
            to put it into the store and to refer to it. An upload that did not come in time stays known as long.
    """

    jobs_s: float
    uploads_s: float
    audit_s: float
    grace_s: float = 3600.0


def expire(connection: Connection, policy: Policy, remove: Callable[[list[str]], None]) -> list[str]:
    """Delete what is older than the policy keeps it, and have content removed that nothing refers to any more.

    Content is removed while its row is locked: who announces the same content at the same moment waits, and then finds
    it gone. If this process ends in between, the row is still there and its content is removed once more later.

    Args:
        connection: In a transaction.
        policy: What is kept how long.
        remove: Removes content of these digests from the store; that something is not there is no error.

    Returns:
        The digests of the content that was removed.
    """
    _delete(connection, jobs, jobs.c.ended_at < now() - policy.jobs_s)
    _delete(
        connection,
        uploads,
        or_(
            uploads.c.stored_at < now() - policy.uploads_s,
            (uploads.c.state == "pending") & (uploads.c.expires_at < now() - policy.grace_s),
        ),
    )
    _delete(connection, audit, audit.c.at < now() - policy.audit_s)
    _delete(connection, browser_sessions, browser_sessions.c.expires_at < now())
    _delete(connection, executors, executors.c.seen_at < now() - EXECUTOR_S)
    return _collect(connection, policy, remove)


def _collect(connection: Connection, policy: Policy, remove: Callable[[list[str]], None]) -> list[str]:
    is_old = blob_table.c.created_at < now() - policy.grace_s
    locked = (
        connection.execute(
            select(blob_table.c.digest)
            .where(is_old, ~blobs.is_referred_to())
            .order_by(blob_table.c.digest)
            .limit(REMOVED_AT_ONCE)
            .with_for_update(skip_locked=True)
        )
        .scalars()
        .all()
    )
    # asked again under the lock: whoever referred to it in between did so before the lock, and only now is that seen
    gone = (
        connection.execute(
            delete(blob_table)
            .where(blob_table.c.digest.in_(locked), is_old, ~blobs.is_referred_to())
            .returning(blob_table.c.digest)
        )
        .scalars()
        .all()
    )
    digests = sorted(gone)
    if digests:
        remove(digests)
    return digests


def _delete(connection: Connection, table: Table, condition: Any) -> None:
    (identity,) = table.primary_key.columns
    old = select(identity).where(condition).limit(AT_ONCE).with_for_update(skip_locked=True)
    connection.execute(delete(table).where(identity.in_(old)))
