"""Whatever executors, owners and sweepers do in whatever order: a job ends once, and what is known of it only grows."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule, run_state_machine_as_test
from sqlalchemy import Connection, delete

from runner.errors import ConflictError, LeaseLostError, QuotaError
from runner.service.database import events, jobs
from runner.service.database.database import Database
from runner.service.database.rows import Claim, Ended, EventRow, JobRow, KeyRow
from runner.service.database.schema import ENDED_STATES
from runner.service.database.schema import jobs as job_table
from tests.service.database.lab import LEASE_S, execute, job_of, lose, make_key, submit

ENDS = st.sampled_from(ENDED_STATES)


class Queue(RuleBasedStateMachine):
    """The queue, beside a model of who holds what.

    `held` has the claims that must be good, by job; every other claim that was ever given must be refused everything.
    """

    database: ClassVar[Database]
    claims = Bundle("claims")

    def __init__(self) -> None:
        super().__init__()
        # the example before had the same database
        execute(self.database, delete(job_table))
        self.keys: list[KeyRow] = [
            make_key(self.database, max_jobs=4, max_running=2),
            make_key(self.database, max_jobs=3, max_running=1),
        ]
        self.held: dict[str, Claim] = {}
        self.known: dict[str, JobRow] = {}
        self.attempts: dict[str, int] = {}

    @rule(which=st.integers(0, 1), attempts=st.integers(1, 3))
    def submit(self, which: int, attempts: int) -> None:
        key = self.keys[which]
        is_full = self.count(key, "queued", "running") >= key.max_jobs
        try:
            job = submit(self.database, key, max_attempts=attempts)
        except QuotaError:
            assert is_full
        else:
            assert not is_full
            self.known[job.id] = job
            self.attempts[job.id] = 0

    @rule(target=claims)
    def claim(self) -> Any:
        waits = any(self.count(key, "queued") and self.count(key, "running") < key.max_running for key in self.keys)
        claimed = self.database.run_now(jobs.claim, "exe", LEASE_S)
        assert (claimed is not None) == waits
        if claimed is None:
            return multiple()
        assert claimed.job.id not in self.held
        self.held[claimed.job.id] = claimed
        self.attempts[claimed.job.id] += 1
        return claimed

    @rule(claimed=claims)
    def renew(self, claimed: Claim) -> None:
        def write() -> None:
            asked = self.database.run_now(jobs.renew, claimed, LEASE_S)
            assert asked == (self.known[claimed.job.id].cancel_requested_at is not None)

        self.only_if_held(claimed, write)

    @rule(claimed=claims, count=st.integers(0, 3))
    def append(self, claimed: Claim, count: int) -> None:
        self.only_if_held(claimed, lambda: self.database.run_now(jobs.append, claimed, [("log", "{}")] * count))

    @rule(claimed=claims, state=ENDS)
    def settle(self, claimed: Claim, state: Ended) -> None:
        if self.only_if_held(claimed, lambda: self.database.run_now(jobs.settle, claimed, state=state)):
            del self.held[claimed.job.id]

    @rule(claimed=claims)
    def give_back(self, claimed: Claim) -> None:
        if self.only_if_held(claimed, lambda: self.database.run_now(jobs.give_back, claimed)):
            del self.held[claimed.job.id]
            if job_of(self.database, claimed.job.id).state == "queued":
                self.attempts[claimed.job.id] -= 1

    @rule(claimed=claims)
    def lose(self, claimed: Claim) -> None:
        if self.held.get(claimed.job.id) == claimed:
            lose(self.database, claimed)
            del self.held[claimed.job.id]

    @rule()
    def sweep(self) -> None:
        lost = {job.id for job in self.known.values() if job.state == "running"} - self.held.keys()
        assert {job.id for job in self.database.run_now(jobs.sweep)} == lost

    @rule(place=st.integers(0, 9))
    def cancel(self, place: int) -> None:
        if self.known:
            job = self.at(place)
            cancelled = self.database.run_now(jobs.cancel, job.tenant_id, job.id)
            assert cancelled is not None
            assert (cancelled.state == "cancelled") == (job.state in ("queued", "cancelled"))

    @rule(place=st.integers(0, 9))
    def delete(self, place: int) -> None:
        if self.known:
            job = self.at(place)
            try:
                assert self.database.run_now(jobs.delete, job.tenant_id, job.id)
            except ConflictError:
                assert job.state in ("queued", "running")
            else:
                assert job.state in ENDED_STATES
                del self.known[job.id]

    @invariant()
    def what_is_known_only_grows_and_has_one_end(self) -> None:
        found, rows = self.database.read_now(look, list(self.known))
        assert found.keys() == self.known.keys()
        for job_id, job in found.items():
            before = self.known[job_id]
            assert job.fence >= before.fence
            assert job.last_seq >= before.last_seq
            assert job.attempts == self.attempts[job_id] <= job.max_attempts
            if before.state in ENDED_STATES:
                assert job == before
            if job_id in self.held:
                assert (job.state, job.fence) == ("running", self.held[job_id].fence)
            told = [row for row in rows if row.job_id == job_id]
            assert [row.seq for row in told] == list(range(1, job.last_seq + 1))
            ends = [row for row in told if row.kind == "end"]
            assert len(ends) == (job.state in ENDED_STATES)
            if ends:
                assert ends[0] is told[-1]
                assert json.loads(ends[0].body)["state"] == job.state
        self.known = found

    def at(self, place: int) -> JobRow:
        return list(self.known.values())[place % len(self.known)]

    def count(self, key: KeyRow, *states: str) -> int:
        return sum(job.key_id == key.id and job.state in states for job in self.known.values())

    def only_if_held(self, claimed: Claim, write: Callable[[], object]) -> bool:
        if self.held.get(claimed.job.id) == claimed:
            write()
            return True
        with pytest.raises(LeaseLostError):
            write()
        return False


def look(connection: Connection, job_ids: list[str]) -> tuple[dict[str, JobRow], list[EventRow]]:
    found = {job_id: jobs.get(connection, None, job_id) for job_id in job_ids}
    return {job_id: job for job_id, job in found.items() if job is not None}, events.after(
        connection, dict.fromkeys(job_ids, 0)
    )


def test_every_job_ends_once_whatever_happens(database: Database) -> None:
    class OnThisDatabase(Queue):
        pass

    OnThisDatabase.database = database
    run_state_machine_as_test(
        OnThisDatabase,
        settings=settings(
            max_examples=8,
            stateful_step_count=25,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
