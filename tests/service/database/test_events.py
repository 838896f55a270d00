"""Events: numbered without gaps from one, read from any position, many jobs at once."""

from __future__ import annotations

from sqlalchemy import Connection

from runner.service.database import events, jobs
from runner.service.database.database import Database
from runner.service.database.rows import Claim
from tests.service.database.lab import LEASE_S, at_once, claim, make_key, submit


def test_events_are_numbered_from_one_without_gaps(database: Database) -> None:
    submit(database, make_key(database))
    claimed = claim(database)
    assert database.run_now(jobs.append, claimed, [("phase", '{"a": 1}'), ("log", '{"text": "é �"}')]) == 2
    assert database.run_now(jobs.append, claimed, []) == 2
    assert database.run_now(jobs.append, claimed, [("log", "{}")]) == 3
    rows = database.read_now(events.after, {claimed.job.id: 0})
    assert [(row.seq, row.kind, row.body) for row in rows] == [
        (1, "phase", '{"a": 1}'), (2, "log", '{"text": "é �"}'), (3, "log", "{}"),
    ]  # fmt: skip
    assert database.read_now(events.after, {claimed.job.id: 2}) == rows[2:]
    assert database.read_now(events.after, {claimed.job.id: 3, "job_unknown": 0}) == []


def test_appending_at_once_numbers_each_event_once(database: Database) -> None:
    submit(database, make_key(database))
    claimed = claim(database)
    at_once(5, lambda number: database.run_now(jobs.append, claimed, [("log", f"{number}")] * 3))
    rows = database.read_now(events.after, {claimed.job.id: 0})
    assert [row.seq for row in rows] == list(range(1, 16))
    # what was appended together stands together
    assert all(len({row.body for row in rows[start : start + 3]}) == 1 for start in range(0, 15, 3))


def test_events_of_many_jobs_are_read_together_each_from_its_own_position(database: Database) -> None:
    key = make_key(database)

    def make(connection: Connection) -> list[Claim]:
        made = []
        for number in range(60):
            jobs.submit(
                connection, tenant_id=key.tenant_id, key_id=key.id, kind="batch", name=f"{number}", spec={}, inputs={}
            )
            claimed = jobs.claim(connection, "exe_one", LEASE_S)
            assert claimed is not None
            jobs.append(connection, claimed, [("log", f"{number}")] * 3)
            made.append(claimed)
        return made

    claims = database.run_now(make)
    positions = {claimed.job.id: number % 4 for number, claimed in enumerate(claims)}
    rows = database.read_now(events.after, positions)
    assert [(row.job_id, row.seq) for row in rows] == [
        (job_id, seq) for job_id in sorted(positions) for seq in range(positions[job_id] + 1, 4)
    ]
    heads = database.read_now(events.heads, [*positions, "job_unknown"])
    assert heads == {claimed.job.id: (3, "running") for claimed in claims}


def test_a_long_history_is_read_in_parts_and_holds_nobody_up(database: Database) -> None:
    key = make_key(database)
    long, short = submit(database, key), submit(database, key)
    first, second = claim(database), claim(database)
    database.run_now(jobs.append, first, [("log", "{}")] * 25)
    database.run_now(jobs.append, second, [("log", "{}")] * 2)
    rows = database.read_now(events.after, {long.id: 0, short.id: 0}, limit=10)
    assert len([row for row in rows if row.job_id == short.id]) == 2
    seen = [row.seq for row in rows if row.job_id == long.id]
    while more := database.read_now(events.after, {long.id: seen[-1]}, limit=10):
        seen += [row.seq for row in more]
    assert seen == list(range(1, 26))


def test_nothing_is_asked_for_nothing(database: Database) -> None:
    assert database.read_now(events.after, {}) == []
    assert database.read_now(events.heads, []) == {}
