"""Events of jobs, for whoever watches: read by position, written only together with the job (`jobs.append`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import islice
from typing import Final

from sqlalchemy import Connection, select, union_all

from runner.service.database.rows import EventRow, State
from runner.service.database.schema import events, jobs

PER_JOB: Final = 500
"""Of one job at once, so that a long history does not hold up the other streams."""

_TOGETHER: Final = 50
"""Jobs asked for by one statement."""


def after(connection: Connection, positions: Mapping[str, int], *, limit: int = PER_JOB) -> list[EventRow]:
    """Return the events that follow a position of each job, in order.

    Args:
        connection: In a transaction.
        positions: Job id to the last `seq` that is known; 0 for none.
        limit: Events of each job at most; what is left comes with the next call.
    """
    found: list[EventRow] = []
    left = iter(positions.items())
    while together := list(islice(left, _TOGETHER)):
        parts = [
            select(
                select(events)
                .where(events.c.job_id == job_id, events.c.seq > seq)
                .order_by(events.c.seq)
                .limit(limit)
                .subquery()
            )
            for job_id, seq in together
        ]
        found += [EventRow(**row._mapping) for row in connection.execute(union_all(*parts))]
    return sorted(found, key=lambda row: (row.job_id, row.seq))


def heads(connection: Connection, job_ids: Collection[str]) -> dict[str, tuple[int, State]]:
    """Return, of each job that there is, the last event's `seq` and the state."""
    rows = connection.execute(select(jobs.c.id, jobs.c.last_seq, jobs.c.state).where(jobs.c.id.in_(job_ids)))
    return {row.id: (row.last_seq, row.state) for row in rows}
