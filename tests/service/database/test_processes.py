"""Several processes at one database: each job is given to one, and one that is killed leaves nothing behind."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from runner.service.database import events, jobs
from runner.service.database.database import Database
from tests.service.database.lab import claim, job_of, make_key, submit
from tests.service.nursery import Child, Nursery

TURNS = 10
FAIR = 5
"""Turns that a process may have for each one of another; where a lock is looked at ever less often, it has many."""


class Taker:
    """Starts processes that take jobs."""

    def __init__(self, nursery: Nursery, url: str) -> None:
        self._nursery = nursery
        self._url = url

    @contextmanager
    def __call__(self, name: str, mode: str) -> Iterator[Child]:
        """Have one for the length of the context."""
        process = self._nursery.start(
            "tests.service.database.taking", self._url, name, mode, env=os.environ, stdin=True
        )
        assert process.stdin is not None
        assert process.stdout is not None
        with process.stdin, process.stdout:
            try:
                assert process.stdout.readline() == "ready\n"
                yield process
            finally:
                process.kill()
                process.wait()


@pytest.fixture
def taker(nursery: Nursery, database_url: str) -> Taker:
    """Starts processes that take jobs from the same database."""
    return Taker(nursery, database_url)


def test_each_job_is_given_to_one_of_many_processes(database: Database, taker: Taker) -> None:
    keys = [make_key(database), make_key(database)]
    submitted = [submit(database, keys[number % 2]).id for number in range(16)]
    with taker("exe_a", "all") as one, taker("exe_b", "all") as two:
        for process in (one, two):
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        taken = [process.stdout.read().split() for process in (one, two) if process.stdout is not None]
        assert one.wait() == two.wait() == 0
    assert sorted(taken[0] + taken[1]) == sorted(submitted)
    for job_id in submitted:
        job = job_of(database, job_id)
        assert (job.state, job.attempts, job.fence, job.last_seq) == ("done", 1, 1, 2)


def test_a_process_that_is_killed_in_a_transaction_leaves_nothing_of_it(database: Database, taker: Taker) -> None:
    job = submit(database, make_key(database))
    with taker("exe_a", "hold") as process:
        assert job_of(database, job.id) == job
        process.kill()
        process.wait()
        assert database.read_now(events.after, {job.id: 0}) == []
        claimed = claim(database, "exe_b")
        assert (claimed.job.id, claimed.fence, claimed.job.attempts) == (job.id, 1, 1)
    database.run_now(jobs.settle, claimed, state="done")


def test_a_process_that_writes_all_the_time_leaves_others_their_turn(database: Database, taker: Taker) -> None:
    key = make_key(database)
    told = submit(database, key).id
    with taker("exe_a", "tell"):
        while (before := job_of(database, told).last_seq) == 0:
            pass
        for _ in range(TURNS):
            submit(database, key)
        assert job_of(database, told).last_seq - before < TURNS * FAIR
