"""The queue: jobs are submitted, claimed under a lease, written to by whoever holds it, and end exactly once.

    queued ──claim──▶ running ──settle──▶ done │ failed │ cancelled
      ▲  │               │
      │  └──cancel───────┼──────────────▶ cancelled
      └──give_back,      │
         sweep ◀─────────┴──sweep, no attempt left──▶ failed

Each time the right to write to a job changes, its fence grows; a claim is good while its fence is the job's, and only
until its lease is over, by the database's clock. Both are conditions of the very statement that writes, so whoever has
lost a job can change nothing of it any more. Whatever ends a job appends its last event, `end`, in the same
transaction.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Row, Select, and_, func, insert, or_, select, update
from sqlalchemy import delete as delete_from

from runner.errors import ConflictError, QuotaError
from runner.service.database import blobs as contents
from runner.service.database import keys, transitions
from runner.service.database.rows import Claim, Ended, JobRow, Judgement, Kind, State
from runner.service.database.schema import (
    ENDED_STATES,
    IS_QUEUED,
    IS_RUNNING,
    OPEN_STATES,
    job_blobs,
    jobs,
    new_id,
    now,
)
from runner.service.database.schema import keys as key_table

RESULTS: Final = ("verdict", "report", "logs")
"""Roles of what a job leaves behind."""

SWEPT_AT_ONCE: Final = 100
"""By one transaction: more are left to the next."""


def submit(
    connection: Connection,
    *,
    tenant_id: str,
    key_id: str,
    kind: Kind,
    name: str,
    spec: Mapping[str, Any],
    inputs: Mapping[str, str],
    max_attempts: int = 2,
) -> JobRow:
    """Put a job into the queue.

    Args:
        connection: In a transaction.
        tenant_id: Whose it is.
        key_id: Whose quota it takes, and whose turn it waits for.
        kind: What is to be done.
        name: What its owner calls it.
        spec: What is to be done, more exactly; JSON.
        inputs: Role to the digest of what lies in the blob store; kept there until the job is deleted.
        max_attempts: How often it is begun at most, when executors are lost with it.

    Raises:
        QuotaError: the key has as many jobs waiting or running as it may have.
        ConflictError: an input is not in the store any more, or there is no such key.
    """
    key = keys.hold(connection, key_id)
    if key is None:
        raise ConflictError("There is no such key.")
    taken = keys.waiting_jobs(connection, key_id) + keys.running_jobs(connection, key_id)
    if taken >= key.max_jobs:
        raise QuotaError(
            f"The key has {taken} jobs waiting or running and may have {key.max_jobs}.",
            which="jobs",
            limit=key.max_jobs,
            hint="Submit again when one of them is over.",
        )
    contents.refer(connection, inputs.values())
    row = connection.execute(
        insert(jobs)
        .values(
            id=new_id("job"),
            tenant_id=tenant_id,
            key_id=key_id,
            kind=kind,
            name=name,
            state="queued",
            spec=dict(spec),
            attempts=0,
            max_attempts=max_attempts,
            fence=0,
            last_seq=0,
            created_at=now(),
        )
        .returning(jobs)
    ).one()
    if inputs:
        connection.execute(
            insert(job_blobs),
            [{"job_id": row.id, "role": role, "digest": digest} for role, digest in sorted(inputs.items())],
        )
    return transitions.job(row)


def get(connection: Connection, tenant_id: str | None, job_id: str) -> JobRow | None:
    """Return a job of a tenant; of any, for `None`."""
    row = connection.execute(select(jobs).where(*_whose(tenant_id, job_id))).one_or_none()
    return None if row is None else transitions.job(row)


def inputs(connection: Connection, job_id: str) -> dict[str, str]:
    """Return the digests of a job's inputs by their role."""
    rows = connection.execute(select(job_blobs.c.role, job_blobs.c.digest).where(job_blobs.c.job_id == job_id))
    return {row.role: row.digest for row in rows}


def page(
    connection: Connection,
    tenant_id: str,
    *,
    kind: Kind,
    state: State | None = None,
    judgement: Judgement | None = None,
    query: str | None = None,
    before: str | None = None,
    limit: int,
) -> list[JobRow]:
    """Return jobs of a tenant, newest first.

    Args:
        connection: In a transaction.
        tenant_id: Whose.
        kind: Of which kind.
        state: Only those in this state.
        judgement: Only those with this judgement.
        query: Only those that have this text in their name or id, in whatever case.
        before: Where the page before ended: `cursor` of its last job.
        limit: At most so many.

    Raises:
        ValueError: `before` is no cursor.
    """
    wanted = select(jobs).where(jobs.c.tenant_id == tenant_id, jobs.c.kind == kind)
    if state is not None:
        wanted = wanted.where(jobs.c.state == state)
    if judgement is not None:
        wanted = wanted.where(jobs.c.judgement == judgement)
    if query:
        wanted = wanted.where(
            or_(jobs.c.name.icontains(query, autoescape=True), jobs.c.id.icontains(query, autoescape=True))
        )
    if before is not None:
        at, separator, job_id = before.partition("~")
        if not separator:
            raise ValueError("not a cursor")
        moment = float(at)
        wanted = wanted.where(or_(jobs.c.created_at < moment, and_(jobs.c.created_at == moment, jobs.c.id < job_id)))
    wanted = wanted.order_by(jobs.c.created_at.desc(), jobs.c.id.desc()).limit(limit)
    return [transitions.job(row) for row in connection.execute(wanted)]


def cursor(job: JobRow) -> str:
    """Return where a page that ends with this job ends; good also when the job is gone."""
    return f"{job.created_at!r}~{job.id}"


def claim(connection: Connection, executor_id: str, lease_s: float) -> Claim | None:
    """Take the next job: of the key whose turn it is, the oldest.

    It is the turn of a key that has fewer jobs running than others and than it may have; among equals, of the one that
    has waited longest since it was last served. Two at once never get the same job, nor more of a key than it may have.

    Args:
        connection: In a transaction.
        executor_id: Who takes it.
        lease_s: How long it is theirs, if it is not renewed.

    Returns:
        The claim; `None` when nothing can be taken.
    """
    for key_id in connection.execute(_keys_in_turn()).scalars().all():
        # one after the other within a key, so that none runs more than it may
        key = keys.hold(connection, key_id)
        if key is None or keys.running_jobs(connection, key_id) >= key.max_running:
            continue
        job_id = connection.execute(
            select(jobs.c.id)
            .where(jobs.c.key_id == key_id, IS_QUEUED)
            .order_by(jobs.c.created_at, jobs.c.id)
            .limit(1)
            .with_for_update(skip_locked=True)
        ).scalar_one_or_none()
        if job_id is None:
            continue
        connection.execute(update(key_table).where(key_table.c.id == key_id).values(served_at=now()))
        row = connection.execute(
            update(jobs)
            .where(jobs.c.id == job_id)
            .values(
                state="running",
                attempts=jobs.c.attempts + 1,
                fence=jobs.c.fence + 1,
                executor_id=executor_id,
                lease_until=now() + lease_s,
                started_at=now(),
            )
            .returning(jobs)
        ).one()
        return Claim(job=transitions.job(row), fence=row.fence)
    return None


def _keys_in_turn() -> Select[Any]:
    running = (
        select(func.count()).where(jobs.c.key_id == key_table.c.id, IS_RUNNING).correlate(key_table).scalar_subquery()
    )
    waits = select(jobs.c.id).where(jobs.c.key_id == key_table.c.id, IS_QUEUED).exists()
    return (
        select(key_table.c.id)
        .where(waits, running < key_table.c.max_running)
        .order_by(running, func.coalesce(key_table.c.served_at, 0.0), key_table.c.id)
    )


def renew(connection: Connection, claim: Claim, lease_s: float) -> bool:
    """Keep a job for `lease_s` from now on, and tell whether it is to be cancelled.

    Raises:
        LeaseLostError: it is not theirs any more.
    """
    row = transitions.write(connection, claim, lease_until=now() + lease_s)
    return row.cancel_requested_at is not None


def append(connection: Connection, claim: Claim, entries: Sequence[tuple[str, str]]) -> int:
    """Append events to a job.

    Args:
        connection: In a transaction.
        claim: The right to do so.
        entries: Kind and JSON text of each.

    Returns:
        `seq` of the last event.

    Raises:
        LeaseLostError: the job is not theirs any more.
    """
    row = transitions.write(connection, claim, last_seq=jobs.c.last_seq + len(entries))
    transitions.add_events(connection, row, entries)
    return int(row.last_seq)


def settle(
    connection: Connection,
    claim: Claim,
    *,
    state: Ended,
    judgement: Judgement | None = None,
    error: str | None = None,
    blobs: Mapping[str, str] | None = None,
) -> JobRow:
    """End a job.

    Args:
        connection: In a transaction.
        claim: The right to do so.
        state: How it ended.
        judgement: What was found.
        error: Why it failed, for who submitted it.
        blobs: What it leaves behind: of `verdict`, `report` and `logs`, the digest of each; announced by `blobs.pin`.

    Raises:
        LeaseLostError: the job is not theirs any more.
        ConflictError: something of what it leaves behind is not in the store.
        ValueError: something else is left behind.
    """
    left = dict(blobs or {})
    if unknown := left.keys() - set(RESULTS):
        raise ValueError(f"a job leaves no {sorted(unknown)[0]!r} behind")
    if state not in ENDED_STATES:
        raise ValueError(f"{state!r} is no end")
    transitions.write(connection, claim)
    contents.refer(connection, left.values())
    results = {f"{role}_blob": digest for role, digest in left.items()}
    return transitions.end(connection, claim.job.id, state=state, judgement=judgement, error=error, **results)


def give_back(connection: Connection, claim: Claim) -> JobRow:
    """Put a job back into the queue, in its old place; that it was begun does not count.

    One that is to be cancelled ends as that.

    Raises:
        LeaseLostError: it is not theirs any more.
    """
    row = transitions.write(connection, claim)
    if row.cancel_requested_at is not None:
        return transitions.end(connection, row.id, state="cancelled")
    return transitions.requeue(connection, row, attempts=row.attempts - 1)


def sweep(connection: Connection) -> list[JobRow]:
    """Take jobs from executors whose lease is over: back into the queue, or failed when no attempt is left.

    Of several that sweep at once, one deals with each job.

    Returns:
        The jobs as they are now.
    """
    rows = connection.execute(
        select(jobs)
        .where(IS_RUNNING, jobs.c.lease_until <= now())
        .order_by(jobs.c.lease_until)
        .limit(SWEPT_AT_ONCE)
        .with_for_update(skip_locked=True)
    ).all()
    return [_take_away(connection, row) for row in rows]


def _take_away(connection: Connection, row: Row[Any]) -> JobRow:
    if row.cancel_requested_at is not None:
        return transitions.end(connection, row.id, state="cancelled")
    if row.attempts >= row.max_attempts:
        return transitions.end(
            connection,
            row.id,
            state="failed",
            judgement="unjudged" if row.kind == "validation" else None,
            error=f"Its executor was lost, at attempt {row.attempts} of {row.max_attempts}.",
        )
    text = f"The executor was lost; attempt {row.attempts + 1} of {row.max_attempts} follows."
    body = json.dumps({"phase": "queued", "text": text})
    return transitions.requeue(connection, row, attempts=row.attempts, entries=[("phase", body)])


def cancel(connection: Connection, tenant_id: str, job_id: str) -> JobRow | None:
    """Have a job end early: at once while it waits; one that runs, as soon as its executor hears of it.

    One that is over stays as it is.

    Returns:
        The job; `None` when there is none.
    """
    row = connection.execute(select(jobs).where(*_whose(tenant_id, job_id)).with_for_update()).one_or_none()
    if row is None:
        return None
    if row.state == "queued":
        return transitions.end(connection, job_id, state="cancelled", cancel_requested_at=now())
    if row.state == "running" and row.cancel_requested_at is None:
        row = connection.execute(
            update(jobs).where(jobs.c.id == job_id).values(cancel_requested_at=now()).returning(jobs)
        ).one()
    return transitions.job(row)


def delete(connection: Connection, tenant_id: str, job_id: str) -> bool:
    """Delete a job that is over, with its events.

    Returns:
        Whether there was one.

    Raises:
        ConflictError: it still waits or runs.
    """
    row = connection.execute(select(jobs.c.state).where(*_whose(tenant_id, job_id)).with_for_update()).one_or_none()
    if row is None:
        return False
    if row.state in OPEN_STATES:
        raise ConflictError(f"The job cannot be deleted: it is {row.state}.", hint="Cancel it first.")
    connection.execute(delete_from(jobs).where(jobs.c.id == job_id))
    return True


def waiting(connection: Connection) -> dict[str, int]:
    """Return how many jobs wait, and how many run."""
    counts = {"queued": select(func.count()).where(IS_QUEUED), "running": select(func.count()).where(IS_RUNNING)}
    return {state: connection.execute(count).scalar_one() for state, count in counts.items()}


def _whose(tenant_id: str | None, job_id: str) -> tuple[ColumnElement[bool], ...]:
    this = jobs.c.id == job_id
    return (this,) if tenant_id is None else (this, jobs.c.tenant_id == tenant_id)
