"""Leases: who has lost one can write nothing any more, and whoever sweeps deals with each lost job once."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import chain

import pytest

from runner.errors import LeaseLostError
from runner.service.database import events, jobs
from runner.service.database.database import Database
from runner.service.database.rows import Claim
from tests.service.database.lab import LEASE_S, at_once, claim, job_of, lose, make_key, older, pin, submit

Write = Callable[[Database, Claim], object]

WRITES: dict[str, Write] = {
    "renew": lambda database, claimed: database.run_now(jobs.renew, claimed, LEASE_S),
    "append": lambda database, claimed: database.run_now(jobs.append, claimed, [("log", "{}")]),
    "append nothing": lambda database, claimed: database.run_now(jobs.append, claimed, []),
    "settle": lambda database, claimed: database.run_now(
        jobs.settle, claimed, state="done", judgement="valid", blobs={"verdict": pin(database, "verdict")[0]}
    ),
    "give back": lambda database, claimed: database.run_now(jobs.give_back, claimed),
}


def is_over(database: Database, claimed: Claim) -> None:
    lose(database, claimed)


def was_swept(database: Database, claimed: Claim) -> None:
    lose(database, claimed)
    database.run_now(jobs.sweep)


def is_anothers(database: Database, claimed: Claim) -> None:
    was_swept(database, claimed)
    claim(database, "exe_other")


def is_anothers_of_the_same_executor(database: Database, claimed: Claim) -> None:
    was_swept(database, claimed)
    claim(database)


def was_given_back(database: Database, claimed: Claim) -> None:
    database.run_now(jobs.give_back, claimed)


def was_settled(database: Database, claimed: Claim) -> None:
    database.run_now(jobs.settle, claimed, state="failed", error="first")


def was_failed_for_good(database: Database, claimed: Claim) -> None:
    for _ in range(2):
        lose(database, claimed)
        database.run_now(jobs.sweep)
        if job_of(database, claimed.job.id).state == "queued":
            claim(database)
    assert job_of(database, claimed.job.id).state == "failed"


def was_cancelled(database: Database, claimed: Claim) -> None:
    database.run_now(jobs.cancel, claimed.job.tenant_id, claimed.job.id)
    was_swept(database, claimed)


def was_deleted(database: Database, claimed: Claim) -> None:
    was_settled(database, claimed)
    database.run_now(jobs.delete, claimed.job.tenant_id, claimed.job.id)


LOSSES = (
    is_over, was_swept, is_anothers, is_anothers_of_the_same_executor, was_given_back, was_settled,
    was_failed_for_good, was_cancelled, was_deleted,
)  # fmt: skip


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.__name__)
def test_who_has_lost_a_job_can_write_nothing_of_it(
    database: Database, loss: Callable[[Database, Claim], None]
) -> None:
    submit(database, make_key(database))
    claimed = claim(database)
    loss(database, claimed)
    pin(database, "verdict")
    before = database.read_now(jobs.get, None, claimed.job.id)
    history = database.read_now(events.after, {claimed.job.id: 0})
    for write in WRITES.values():
        with pytest.raises(LeaseLostError, match=claimed.job.id):
            write(database, claimed)
        assert database.read_now(jobs.get, None, claimed.job.id) == before
        assert database.read_now(events.after, {claimed.job.id: 0}) == history


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
def test_who_has_a_job_can_write(database: Database, write: Write) -> None:
    submit(database, make_key(database))
    claimed = claim(database)
    with pytest.raises(LeaseLostError):
        write(database, older(claimed))
    write(database, claimed)


def test_a_renewed_lease_lasts_from_now_on(database: Database) -> None:
    submit(database, make_key(database))
    claimed = claim(database)
    database.run_now(jobs.renew, claimed, 10 * LEASE_S)
    assert claimed.job.lease_until is not None
    until = job_of(database, claimed.job.id).lease_until
    assert until is not None
    assert until > claimed.job.lease_until + 8 * LEASE_S
    assert database.run_now(jobs.sweep) == []


def test_a_job_that_is_given_back_keeps_its_place_and_its_attempts(database: Database) -> None:
    key = make_key(database)
    first, _ = submit(database, key), submit(database, key)
    claimed = claim(database)
    database.run_now(jobs.append, claimed, [("log", "{}")])
    given = database.run_now(jobs.give_back, claimed)
    assert (given.state, given.attempts, given.executor_id, given.last_seq) == ("queued", 0, None, 1)
    again = claim(database)
    assert again.job.id == first.id
    assert again.fence > claimed.fence
    assert again.job.attempts == 1


def test_a_job_to_be_cancelled_that_is_given_back_is_cancelled(database: Database) -> None:
    key = make_key(database)
    submit(database, key)
    claimed = claim(database)
    database.run_now(jobs.cancel, key.tenant_id, claimed.job.id)
    assert database.run_now(jobs.give_back, claimed).state == "cancelled"


def test_a_lost_job_is_tried_again_and_fails_when_no_attempt_is_left(database: Database) -> None:
    submit(database, make_key(database), max_attempts=2)
    first = claim(database)
    lose(database, first)
    (swept,) = database.run_now(jobs.sweep)
    assert (swept.state, swept.attempts, swept.executor_id) == ("queued", 1, None)
    assert swept.fence > first.fence
    second = claim(database)
    assert second.job.attempts == 2
    lose(database, second)
    (swept,) = database.run_now(jobs.sweep)
    assert (swept.state, swept.judgement) == ("failed", "unjudged")
    assert swept.error == "Its executor was lost, at attempt 2 of 2."
    assert database.run_now(jobs.sweep) == []
    rows = database.read_now(events.after, {swept.id: 0})
    assert [(row.seq, row.kind) for row in rows] == [(1, "phase"), (2, "end")]
    assert json.loads(rows[0].body)["text"] == "The executor was lost; attempt 2 of 2 follows."


def test_a_lost_batch_has_no_judgement(database: Database) -> None:
    submit(database, make_key(database), kind="batch", max_attempts=1)
    lose(database, claim(database))
    (swept,) = database.run_now(jobs.sweep)
    assert (swept.state, swept.judgement) == ("failed", None)


def test_a_lost_job_that_was_to_be_cancelled_is_cancelled(database: Database) -> None:
    key = make_key(database)
    submit(database, key)
    claimed = claim(database)
    database.run_now(jobs.cancel, key.tenant_id, claimed.job.id)
    lose(database, claimed)
    (swept,) = database.run_now(jobs.sweep)
    assert swept.state == "cancelled"


@pytest.mark.parametrize(("attempts", "state"), [(1, "failed"), (2, "queued")])
def test_of_many_that_sweep_at_once_one_deals_with_each_job(database: Database, attempts: int, state: str) -> None:
    key = make_key(database)
    for _ in range(6):
        submit(database, key, max_attempts=attempts)
        lose(database, claim(database))
    submit(database, key)
    claim(database)
    swept = list(chain.from_iterable(at_once(6, lambda number: database.run_now(jobs.sweep))))
    # of those whose rows others were just dealing with, a later sweep finds none either
    swept += database.run_now(jobs.sweep)
    assert len(swept) == len({job.id for job in swept}) == 6
    assert {(job.state, job.attempts, job.fence) for job in swept} == {(state, 1, 1 if state == "failed" else 2)}
    assert all(len(database.read_now(events.after, {job.id: 0})) == 1 for job in swept)


def test_a_lease_that_is_over_is_not_renewed_while_it_is_swept(database: Database) -> None:
    submit(database, make_key(database), max_attempts=9)
    claimed = claim(database)

    def renew_or_sweep(number: int) -> bool:
        if number:
            return bool(database.run_now(jobs.sweep))
        try:
            database.run_now(jobs.renew, claimed, LEASE_S)
        except LeaseLostError:
            return False
        return True

    for _ in range(3):
        database.run_now(jobs.renew, claimed, LEASE_S)
        lose(database, claimed)
        renewed, swept = at_once(2, renew_or_sweep)
        assert (renewed, swept) == (False, True)
        claimed = claim(database)


def test_a_job_that_is_settled_and_cancelled_at_once_ends_once(database: Database) -> None:
    key = make_key(database)
    for _ in range(4):
        job = submit(database, key)
        claimed = claim(database)

        def settle_or_cancel(number: int, claimed: Claim = claimed) -> object:
            if number:
                return database.run_now(jobs.cancel, key.tenant_id, claimed.job.id)
            return database.run_now(jobs.settle, claimed, state="done", judgement="valid")

        at_once(2, settle_or_cancel)
        assert job_of(database, job.id).state == "done"
        assert [row.kind for row in database.read_now(events.after, {job.id: 0})] == ["end"]


def test_a_waiting_job_that_is_claimed_and_cancelled_at_once_is_one_or_the_other(database: Database) -> None:
    key = make_key(database)
    for _ in range(4):
        job = submit(database, key)

        def claim_or_cancel(number: int, job_id: str = job.id) -> object:
            if number:
                return database.run_now(jobs.cancel, key.tenant_id, job_id)
            return database.run_now(jobs.claim, "exe_one", LEASE_S)

        claimed, _ = at_once(2, claim_or_cancel)
        now = job_of(database, job.id)
        assert now.state == ("running" if claimed else "cancelled")
        assert now.cancel_requested_at is not None
        if isinstance(claimed, Claim):
            assert database.run_now(jobs.renew, claimed, LEASE_S) is True
            database.run_now(jobs.settle, claimed, state="cancelled")
        assert [row.kind for row in database.read_now(events.after, {job.id: 0})] == ["end"]
