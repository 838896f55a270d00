"""Executor processes: who they are, and when they were last heard of."""

from __future__ import annotations

from sqlalchemy import Connection, insert, select, update

from runner.service.database.rows import ExecutorRow
from runner.service.database.schema import executors, new_id, now


def register(connection: Connection, *, host: str, pid: int) -> str:
    """Register an executor and return its id."""
    executor_id = new_id("exe")
    connection.execute(insert(executors).values(id=executor_id, host=host, pid=pid, started_at=now(), seen_at=now()))
    return executor_id


def seen(connection: Connection, executor_id: str) -> None:
    """Note that an executor is alive."""
    connection.execute(update(executors).where(executors.c.id == executor_id).values(seen_at=now()))


def stopped(connection: Connection, executor_id: str) -> None:
    """Note that an executor has ended in order."""
    connection.execute(update(executors).where(executors.c.id == executor_id).values(seen_at=now(), stopped_at=now()))


def alive(connection: Connection, within_s: float) -> list[ExecutorRow]:
    """Return the executors that were heard of within so many seconds and have not stopped, oldest first."""
    rows = connection.execute(
        select(executors)
        .where(executors.c.stopped_at.is_(None), executors.c.seen_at > now() - within_s)
        .order_by(executors.c.started_at, executors.c.id)
    )
    return [ExecutorRow(**row._mapping) for row in rows]
