"""How the row of a job changes: every way in which one is written to, ended or put back, with the events it takes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, insert, update

from runner.errors import LeaseLostError
from runner.service.database.rows import Claim, Ended, JobRow
from runner.service.database.schema import IS_RUNNING, events, jobs, now


def is_held(claim: Claim) -> ColumnElement[bool]:
    """Return the condition that a claim is still good; part of the statement that writes, never asked before it."""
    return and_(
        jobs.c.id == claim.job.id,
        jobs.c.fence == claim.fence,
        IS_RUNNING,
        jobs.c.lease_until > now(),
    )


def write(connection: Connection, claim: Claim, **values: Any) -> Row[Any]:
    """Change a job's row, or only keep it from others until the transaction ends, and return the row as it is then.

    Raises:
        LeaseLostError: the claim is good no more.
    """
    # an UPDATE also when nothing changes: it waits for whoever is changing the row, and then sees what that one did
    values = values or {"fence": jobs.c.fence}
    row = connection.execute(update(jobs).where(is_held(claim)).values(**values).returning(jobs)).one_or_none()
    if row is None:
        raise LeaseLostError(f"The job {claim.job.id} is not this executor's any more.")
    return row


def end(connection: Connection, job_id: str, *, state: Ended, **values: Any) -> JobRow:
    """End a job, with its last event, in a transaction that has its row locked."""
    row = connection.execute(
        update(jobs)
        .where(jobs.c.id == job_id)
        .values(state=state, lease_until=None, ended_at=now(), last_seq=jobs.c.last_seq + 1, **values)
        .returning(jobs)
    ).one()
    body = {"state": row.state, "judgement": row.judgement, "error": row.error}
    add_events(connection, row, [("end", json.dumps(body))])
    return job(row)


def requeue(connection: Connection, row: Row[Any], *, attempts: int, entries: Sequence[tuple[str, str]] = ()) -> JobRow:
    """Put a job back to where it was in the queue; nobody holds it from then on.

    Args:
        connection: In a transaction that has the row locked.
        row: The job.
        attempts: How often it has been begun.
        entries: Events to add, kind and JSON text.
    """
    changed = connection.execute(
        update(jobs)
        .where(jobs.c.id == row.id)
        .values(
            state="queued",
            attempts=attempts,
            fence=jobs.c.fence + 1,
            last_seq=jobs.c.last_seq + len(entries),
            executor_id=None,
            lease_until=None,
            started_at=None,
        )
        .returning(jobs)
    ).one()
    add_events(connection, changed, entries)
    return job(changed)


def add_events(connection: Connection, row: Row[Any], entries: Sequence[tuple[str, str]]) -> None:
    """Add the events that the row's `last_seq` counts already, as its last."""
    if not entries:
        return
    first = row.last_seq - len(entries) + 1
    connection.execute(
        insert(events).values(at=now()),
        [{"job_id": row.id, "seq": seq, "kind": kind, "body": body} for seq, (kind, body) in enumerate(entries, first)],
    )


def job(row: Row[Any]) -> JobRow:
    """Return the value of a row."""
    return JobRow(**row._mapping)
