"""The queue: quotas, whose turn it is, what a claim gives, how a job is cancelled, listed and deleted."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from runner.errors import ConflictError, QuotaError
from runner.service.database import events, jobs, keys
from runner.service.database.database import Database
from runner.service.database.rows import JobRow
from tests.service.database.lab import (
    LEASE_S,
    at_once,
    claim,
    digest_of,
    job_of,
    make_key,
    pin,
    submit,
)


def ends(database: Database, *found: JobRow) -> list[dict[str, object]]:
    rows = database.read_now(events.after, {job.id: 0 for job in found})
    return [json.loads(row.body) for row in rows if row.kind == "end"]


def test_a_submitted_job_waits_with_its_inputs(database: Database) -> None:
    key = make_key(database)
    pickle, metadata = pin(database, "pickle", "metadata")
    job = submit(database, key, "my job", {"pickle": pickle, "metadata": metadata}, spec={"split": "eval", "n": [1]})
    assert (job.state, job.attempts, job.fence, job.last_seq) == ("queued", 0, 0, 0)
    assert job.spec == {"split": "eval", "n": [1]}
    assert database.read_now(jobs.get, key.tenant_id, job.id) == job
    assert database.read_now(jobs.inputs, job.id) == {"pickle": pickle, "metadata": metadata}
    assert database.read_now(jobs.get, make_key(database, "other").tenant_id, job.id) is None


def test_a_job_whose_input_is_gone_is_refused(database: Database) -> None:
    key = make_key(database)
    with pytest.raises(ConflictError, match="not there any more"):
        submit(database, key, inputs={"pickle": digest_of("never")})
    assert database.read_now(jobs.waiting) == {"queued": 0, "running": 0}


def test_a_key_has_no_more_jobs_open_than_it_may(database: Database) -> None:
    key = make_key(database, max_jobs=2)
    submit(database, key)
    submit(database, key)
    claimed = claim(database)
    with pytest.raises(QuotaError, match="has 2 jobs waiting or running and may have 2") as caught:
        submit(database, key)
    assert (caught.value.which, caught.value.limit) == ("jobs", 2)
    database.run_now(jobs.settle, claimed, state="done")
    submit(database, key)


def test_many_that_submit_at_once_never_have_more_open_than_they_may(database: Database) -> None:
    key = make_key(database, max_jobs=3)

    def try_it(number: int) -> bool:
        try:
            submit(database, key)
        except QuotaError:
            return False
        return True

    assert sum(at_once(8, try_it)) == 3


def test_the_oldest_job_of_a_key_is_first(database: Database) -> None:
    key = make_key(database)
    submitted = [submit(database, key).id for _ in range(4)]
    assert [claim(database).job.id for _ in range(4)] == submitted
    assert database.run_now(jobs.claim, "exe_one", LEASE_S) is None


def test_a_claim_says_what_is_to_be_done_and_until_when(database: Database) -> None:
    key = make_key(database)
    waiting = submit(database, key)
    claimed = claim(database, "exe_seven")
    job = claimed.job
    assert (job.id, job.state, job.executor_id, job.attempts) == (waiting.id, "running", "exe_seven", 1)
    assert claimed.fence == job.fence == 1
    assert job.started_at is not None
    assert job.lease_until is not None
    assert job.lease_until - job.started_at == pytest.approx(LEASE_S, abs=1.0)
    assert job_of(database, job.id) == job


def test_keys_take_turns_however_many_jobs_one_has(database: Database) -> None:
    many, few = make_key(database), make_key(database, "other")
    for _ in range(5):
        submit(database, many)
    for _ in range(2):
        submit(database, few)
    served = []
    for _ in range(7):
        claimed = claim(database)
        served.append(claimed.job.key_id)
        database.run_now(jobs.settle, claimed, state="done")
    assert Counter(served[:4]) == {many.id: 2, few.id: 2}
    assert served[4:] == [many.id] * 3


def test_a_key_with_fewer_running_jobs_is_first(database: Database) -> None:
    one, two = make_key(database), make_key(database)
    for _ in range(3):
        submit(database, one)
    assert [claim(database).job.key_id for _ in range(2)] == [one.id, one.id]
    for _ in range(3):
        submit(database, two)
    assert [claim(database).job.key_id for _ in range(2)] == [two.id, two.id]


def test_a_key_runs_no_more_jobs_than_it_may(database: Database) -> None:
    narrow, wide = make_key(database, max_running=1), make_key(database)
    for key in (narrow, narrow, wide, wide):
        submit(database, key)
    claims = [claim(database) for _ in range(3)]
    assert Counter(claimed.job.key_id for claimed in claims) == {narrow.id: 1, wide.id: 2}
    assert database.run_now(jobs.claim, "exe_one", LEASE_S) is None
    (running,) = (claimed for claimed in claims if claimed.job.key_id == narrow.id)
    database.run_now(jobs.settle, running, state="done")
    assert claim(database).job.key_id == narrow.id


def test_many_that_claim_at_once_never_run_more_of_a_key_than_it_may(database: Database) -> None:
    key = make_key(database, max_running=3)
    for _ in range(8):
        submit(database, key)
    claims = at_once(8, lambda number: database.run_now(jobs.claim, f"exe_{number}", LEASE_S))
    assert len([claimed for claimed in claims if claimed is not None]) == 3
    assert database.read_now(keys.usage, key.id).running == 3


def test_what_a_revoked_key_has_submitted_is_done(database: Database) -> None:
    key = make_key(database)
    submit(database, key)
    database.run_now(keys.revoke, key.id)
    assert claim(database).job.key_id == key.id


def test_a_settled_job_is_over_and_says_how(database: Database) -> None:
    key = make_key(database)
    submit(database, key)
    claimed = claim(database)
    verdict, report = pin(database, "verdict", "report")
    job = database.run_now(
        jobs.settle,
        claimed,
        state="done",
        judgement="invalid",
        error="a \0 b \ud800",
        blobs={"verdict": verdict, "report": report},
    )
    assert (job.state, job.judgement, job.error) == ("done", "invalid", "a � b �")
    assert (job.verdict_blob, job.report_blob, job.logs_blob) == (verdict, report, None)
    assert job.ended_at is not None
    assert job.lease_until is None
    assert job_of(database, job.id) == job
    assert ends(database, job) == [{"state": "done", "judgement": "invalid", "error": "a � b �"}]


def test_a_job_leaves_nothing_behind_that_is_not_in_the_store(database: Database) -> None:
    submit(database, make_key(database))
    claimed = claim(database)
    with pytest.raises(ConflictError, match="not there any more"):
        database.run_now(jobs.settle, claimed, state="done", blobs={"verdict": digest_of("never")})
    with pytest.raises(ValueError, match="leaves no 'picture' behind"):
        database.run_now(jobs.settle, claimed, state="done", blobs={"picture": digest_of("x")})
    assert job_of(database, claimed.job.id) == claimed.job


def test_a_waiting_job_is_cancelled_at_once(database: Database) -> None:
    key = make_key(database)
    job = submit(database, key)
    cancelled = database.run_now(jobs.cancel, key.tenant_id, job.id)
    assert cancelled is not None
    assert (cancelled.state, cancelled.judgement) == ("cancelled", None)
    assert database.run_now(jobs.claim, "exe_one", LEASE_S) is None
    assert database.run_now(jobs.cancel, key.tenant_id, job.id) == cancelled
    assert ends(database, job) == [{"state": "cancelled", "judgement": None, "error": None}]


def test_the_executor_of_a_running_job_hears_that_it_is_to_be_cancelled(database: Database) -> None:
    key = make_key(database)
    job = submit(database, key)
    claimed = claim(database)
    assert database.run_now(jobs.renew, claimed, LEASE_S) is False
    asked = database.run_now(jobs.cancel, key.tenant_id, job.id)
    assert asked is not None
    assert asked.state == "running"
    assert asked.cancel_requested_at is not None
    assert database.run_now(jobs.cancel, key.tenant_id, job.id) == asked
    assert database.run_now(jobs.renew, claimed, LEASE_S) is True
    database.run_now(jobs.settle, claimed, state="cancelled")
    assert ends(database, job) == [{"state": "cancelled", "judgement": None, "error": None}]


def test_a_job_of_another_tenant_is_neither_cancelled_nor_deleted(database: Database) -> None:
    job = submit(database, make_key(database))
    other = make_key(database, "other").tenant_id
    assert database.run_now(jobs.cancel, other, job.id) is None
    assert database.run_now(jobs.delete, other, job.id) is False
    assert job_of(database, job.id) == job


def test_a_job_is_deleted_with_its_events_once_it_is_over(database: Database) -> None:
    key = make_key(database)
    job = submit(database, key, inputs={"pickle": pin(database, "pickle")[0]})
    with pytest.raises(ConflictError, match="cannot be deleted: it is queued"):
        database.run_now(jobs.delete, key.tenant_id, job.id)
    claimed = claim(database)
    with pytest.raises(ConflictError, match="cannot be deleted: it is running"):
        database.run_now(jobs.delete, key.tenant_id, job.id)
    database.run_now(jobs.settle, claimed, state="failed", error="no")
    assert database.run_now(jobs.delete, key.tenant_id, job.id) is True
    assert database.run_now(jobs.delete, key.tenant_id, job.id) is False
    assert database.read_now(events.after, {job.id: 0}) == []
    assert database.read_now(jobs.inputs, job.id) == {}


def test_jobs_are_listed_in_pages_newest_first(database: Database) -> None:
    key = make_key(database)
    made = [submit(database, key, f"job {number}") for number in range(5)]
    submit(database, key, kind="batch")
    submit(database, make_key(database, "other"))
    seen: list[JobRow] = []
    before = None
    while page := database.read_now(jobs.page, key.tenant_id, kind="validation", before=before, limit=2):
        seen += page
        before = jobs.cursor(page[-1])
    assert seen == made[::-1]


def test_a_page_goes_on_where_it_was_also_when_its_last_job_is_gone(database: Database) -> None:
    key = make_key(database)
    made = [submit(database, key) for _ in range(3)]
    before = jobs.cursor(made[2])
    database.run_now(jobs.cancel, key.tenant_id, made[2].id)
    database.run_now(jobs.delete, key.tenant_id, made[2].id)
    assert database.read_now(jobs.page, key.tenant_id, kind="validation", before=before, limit=9) == made[1::-1]


@pytest.mark.parametrize("cursor", ["", "job_x", "x~job_y", "nan~", "~", "1e999~job_x", "\ud800~\0"])
def test_a_cursor_that_is_none_is_refused_or_finds_what_it_says(database: Database, cursor: str) -> None:
    key = make_key(database)
    job = submit(database, key)
    try:
        found = database.read_now(jobs.page, key.tenant_id, kind="validation", before=cursor, limit=9)
    except ValueError:
        return
    assert found in ([], [job])


def test_jobs_are_found_by_state_judgement_and_text(database: Database) -> None:
    key = make_key(database)
    percent = submit(database, key, "100% Math_A")
    plain = submit(database, key, "100x MathBA")
    done = submit(database, key, "other")
    database.run_now(jobs.cancel, key.tenant_id, plain.id)
    for _ in range(2):
        claimed = claim(database)
        if claimed.job.id == done.id:
            database.run_now(jobs.settle, claimed, state="done", judgement="valid")

    def found(**wanted: str) -> list[str]:
        page = database.read_now(jobs.page, key.tenant_id, kind="validation", limit=9, **wanted)  # type: ignore[arg-type]
        return [job.name for job in page]

    assert found(state="running") == ["100% Math_A"]
    assert found(judgement="valid") == ["other"]
    assert found(query="MATH") == ["100x MathBA", "100% Math_A"]
    assert found(query="0% m") == ["100% Math_A"]
    assert found(query="h_a") == ["100% Math_A"]
    assert found(query=percent.id[4:12].upper()) == ["100% Math_A"]
    assert found(query="\0") == []


def test_how_many_wait_and_run_is_counted(database: Database) -> None:
    key = make_key(database)
    for _ in range(3):
        submit(database, key)
    claim(database)
    assert database.read_now(jobs.waiting) == {"queued": 2, "running": 1}
