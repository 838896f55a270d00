"""Who did what to what, and how it ended: rows are added and grow old, never changed."""

from __future__ import annotations

from sqlalchemy import Connection, insert, select

from runner.service.database.rows import AuditRow
from runner.service.database.schema import audit, now


def write(
    connection: Connection,
    *,
    tenant_id: str | None = None,
    key_id: str | None = None,
    action: str,
    object: str = "",  # noqa: A002  # the column's name
    outcome: str,
    request_id: str = "",
    address: str = "",
    detail: str = "",
) -> None:
    """Add a row.

    Args:
        connection: In a transaction; the change's own, where there is one.
        tenant_id: Whose key it was, as far as it is known.
        key_id: The key, as far as it is known.
        action: What was asked for, such as `keys.revoke`.
        object: What it was done to, by its id.
        outcome: How it ended, such as `ok` or `denied`.
        request_id: Of the request.
        address: Where it came from.
        detail: More, for people.
    """
    connection.execute(
        insert(audit).values(
            at=now(),
            tenant_id=tenant_id,
            key_id=key_id,
            action=action,
            object=object,
            outcome=outcome,
            request_id=request_id,
            address=address,
            detail=detail,
        )
    )


def page(
    connection: Connection, tenant_id: str | None = None, *, before: int | None = None, limit: int
) -> list[AuditRow]:
    """Return rows of a tenant, or of all, newest first.

    Args:
        connection: In a transaction.
        tenant_id: Whose; of all by default.
        before: Only those older than the row of this id.
        limit: At most so many.
    """
    wanted = select(audit).order_by(audit.c.id.desc()).limit(limit)
    if tenant_id is not None:
        wanted = wanted.where(audit.c.tenant_id == tenant_id)
    if before is not None:
        wanted = wanted.where(audit.c.id < before)
    return [AuditRow(**row._mapping) for row in connection.execute(wanted)]
