"""Retention: what is old goes, what somebody refers to or has just taken stays, and content goes with its row."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from sqlalchemy import Connection, select, update

from runner.service.database import audit, blobs, events, executors, jobs, retention, sessions, uploads
from runner.service.database.database import Database
from runner.service.database.retention import Policy
from runner.service.database.schema import audit as audit_table
from runner.service.database.schema import blobs as blob_table
from runner.service.database.schema import browser_sessions, now
from runner.service.database.schema import executors as executor_table
from runner.service.database.schema import jobs as job_table
from runner.service.database.schema import uploads as upload_table
from tests.service.database.lab import (
    announce,
    at_once,
    claim,
    digest_of,
    execute,
    forget_pins,
    job_of,
    make_key,
    pin,
    submit,
    upload,
)

KEEP = Policy(jobs_s=1000.0, uploads_s=1000.0, audit_s=1000.0)


class Store:
    """Content by its digest, as a blob store has it."""

    def __init__(self) -> None:
        self.content: set[str] = set()

    def remove(self, digests: list[str]) -> None:
        self.content -= set(digests)


def refuse(digests: list[str]) -> None:
    pytest.fail(f"removes {digests}")


def rows_of(database: Database) -> set[str]:
    return {row.digest for row in execute(database, select(blob_table.c.digest))}


def test_what_is_young_stays(database: Database) -> None:
    key = make_key(database)
    upload(database, key, "a", "one")
    submit(database, key)
    database.run_now(jobs.settle, claim(database), state="done")
    database.run_now(audit.write, action="a", outcome="ok")
    pin(database, "just announced")
    removed: list[str] = []
    assert database.run_now(retention.expire, KEEP, removed.extend) == []
    assert removed == []
    assert len(rows_of(database)) == 2
    assert database.read_now(audit.page, limit=9)
    assert database.read_now(uploads.latest, key.tenant_id, "a") is not None


def test_what_is_old_goes(database: Database) -> None:
    key = make_key(database)
    row = upload(database, key, "a", "one")
    late = announce(database, key, "late")
    open_job = submit(database, key, "open")
    waiting = claim(database)
    job = submit(database, key, inputs={"pickle": digest_of("one")})
    claimed = claim(database)
    database.run_now(jobs.settle, claimed, state="done", blobs={"verdict": pin(database, "verdict")[0]})
    database.run_now(audit.write, action="a", outcome="ok")
    token = database.run_now(sessions.create, key.id, lifetime_s=-1.0)
    database.run_now(executors.register, host="h", pid=1)
    forget_pins(database)
    execute(
        database,
        update(upload_table).values(stored_at=now() - 1001, expires_at=now() - 3601),
        update(job_table).where(job_table.c.id == job.id).values(ended_at=now() - 1001),
        update(audit_table).values(at=1.0),
        update(executor_table).values(seen_at=1.0),
    )
    removed: list[str] = []
    gone = database.run_now(retention.expire, KEEP, removed.extend)
    assert gone == removed == sorted([digest_of("one"), digest_of("verdict")])
    assert database.read_now(jobs.get, None, job.id) is None
    assert database.read_now(events.after, {job.id: 0}) == []
    assert job_of(database, open_job.id) == waiting.job
    assert database.read_now(uploads.find, row.id) is None
    assert database.read_now(uploads.find, late.id) is None
    assert database.read_now(audit.page, limit=9) == []
    assert execute(database, select(browser_sessions)) == execute(database, select(executor_table)) == []
    assert database.read_now(sessions.find, token) is None
    assert rows_of(database) == set()


@pytest.mark.parametrize("by", ["upload", "input", "verdict", "report", "logs"])
def test_content_that_something_refers_to_stays_however_old_it_is(database: Database, by: str) -> None:
    key = make_key(database)
    (digest,) = pin(database, "content")
    if by == "upload":
        upload(database, key, "a", "content")
    elif by == "input":
        submit(database, key, inputs={"pickle": digest})
    else:
        submit(database, key)
        database.run_now(jobs.settle, claim(database), state="done", blobs={by: digest})
    forget_pins(database)
    assert database.run_now(retention.expire, KEEP, refuse) == []
    assert rows_of(database) == {digest}


def test_content_of_two_goes_with_the_second(database: Database) -> None:
    key = make_key(database)
    one, _two = upload(database, key, "a", "same"), upload(database, key, "b", "same")
    forget_pins(database)
    for row, expected in ((one, 0), (None, 1)):
        change = update(upload_table).values(stored_at=1.0)
        execute(database, change if row is None else change.where(upload_table.c.id == row.id))
        assert len(database.run_now(retention.expire, KEEP, lambda digests: None)) == expected


def test_a_removal_that_fails_leaves_the_row_for_the_next_time(database: Database) -> None:
    pin(database, "content")
    forget_pins(database)

    def fail(digests: list[str]) -> None:
        raise OSError("the disk")

    with pytest.raises(OSError, match="the disk"):
        database.run_now(retention.expire, KEEP, fail)
    assert rows_of(database) == {digest_of("content")}
    assert database.run_now(retention.expire, KEEP, lambda digests: None) == [digest_of("content")]


def test_much_is_removed_in_parts(database: Database) -> None:
    pin(database, *(f"{number}" for number in range(retention.REMOVED_AT_ONCE + 5)))
    forget_pins(database)
    parts = [len(database.run_now(retention.expire, KEEP, lambda digests: None)) for _ in range(3)]
    assert parts == [retention.REMOVED_AT_ONCE, 5, 0]


def test_an_upload_that_is_just_referring_to_content_keeps_it(database: Database) -> None:
    key = make_key(database)
    pin(database, "content")
    row = announce(database, key, "a")
    forget_pins(database)
    found: list[list[str]] = []
    collector = threading.Thread(
        target=lambda: found.append(database.run_now(retention.expire, KEEP, lambda digests: pytest.fail()))
    )

    def refer_and_begin_to_collect(connection: Connection) -> None:
        uploads.stored(connection, row.id, digest_of("content"), 7)
        collector.start()

    database.run_now(refer_and_begin_to_collect)
    collector.join()
    assert found == [[]]
    assert rows_of(database) == {digest_of("content")}


def test_who_announces_content_while_it_is_removed_waits_and_then_finds_it_gone(database: Database) -> None:
    pin(database, "content")
    store = Store()
    store.content.add(digest_of("content"))
    forget_pins(database)
    was_there: list[bool] = []

    def announce_and_look() -> None:
        database.run_now(blobs.pin, digest_of("content"), 7)
        was_there.append(digest_of("content") in store.content)

    announcer = threading.Thread(target=announce_and_look)

    def remove(digests: list[str]) -> None:
        announcer.start()
        store.remove(digests)

    assert database.run_now(retention.expire, KEEP, remove) == [digest_of("content")]
    announcer.join()
    assert was_there == [False]
    assert rows_of(database) == {digest_of("content")}


def test_what_an_upload_has_taken_is_there_however_often_it_is_collected_meanwhile(database: Database) -> None:
    key = make_key(database, max_bytes=10**6)
    store = Store()
    digest = digest_of("content")
    for turn in range(6):
        row = announce(database, key, f"{turn}")

        def put_or_collect(number: int, upload_id: str = row.id) -> None:
            if number:
                database.run_now(retention.expire, KEEP, store.remove)
                return
            database.run_now(blobs.pin, digest, 7)
            # as a store does: what is there already is not written again
            if digest not in store.content:
                store.content.add(digest)
            database.run_now(uploads.stored, upload_id, digest, 7)

        at_once(3, put_or_collect)
        assert digest in store.content
        assert rows_of(database) == {digest}
        # old, and nothing refers to it: the next turn's collectors may have it
        execute(database, update(upload_table).values(stored_at=1.0))
        database.run_now(retention.expire, replace(KEEP, grace_s=1e9), refuse)
        forget_pins(database)
