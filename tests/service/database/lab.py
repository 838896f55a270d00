"""What tests of the database share: keys, jobs and claims in few words, and clocks that are moved, not waited for."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier
from typing import Any, TypeVar

from sqlalchemy import Connection, update

from runner.service.database import blobs, jobs, keys, uploads
from runner.service.database.database import Database
from runner.service.database.rows import Claim, JobRow, KeyRow, UploadRow
from runner.service.database.schema import blobs as blob_table
from runner.service.database.schema import jobs as job_table
from runner.service.database.schema import now

T = TypeVar("T")

LEASE_S = 600.0
"""No test takes as long: a lease ends only when `lose` says so."""


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def make_key(database: Database, tenant: str = "acme", **changes: Any) -> KeyRow:
    quotas = {"max_bytes": 1000, "max_jobs": 1000, "max_running": 1000, "requests_per_minute": 60} | changes
    return database.run_now(keys.create, tenant=tenant, name="a key", scopes=["submit", "read"], **quotas)[0]


def pin(database: Database, *texts: str) -> list[str]:
    for text in texts:
        database.run_now(blobs.pin, digest_of(text), len(text))
    return [digest_of(text) for text in texts]


def announce(database: Database, key: KeyRow, path: str, **changes: Any) -> UploadRow:
    facts: dict[str, Any] = {"mime": "text/plain", "lifetime_s": LEASE_S} | changes
    return database.run_now(uploads.create, tenant_id=key.tenant_id, key_id=key.id, path=path, **facts)


def upload(database: Database, key: KeyRow, path: str, text: str) -> UploadRow:
    announced = announce(database, key, path)
    (digest,) = pin(database, text)
    return database.run_now(uploads.stored, announced.id, digest, len(text))


def submit(
    database: Database, key: KeyRow, name: str = "a job", inputs: Mapping[str, str] | None = None, **changes: Any
) -> JobRow:
    facts: dict[str, Any] = {"kind": "validation", "spec": {"split": "eval"}} | changes
    return database.run_now(
        jobs.submit, tenant_id=key.tenant_id, key_id=key.id, name=name, inputs=inputs or {}, **facts
    )


def claim(database: Database, executor: str = "exe_one") -> Claim:
    claimed = database.run_now(jobs.claim, executor, LEASE_S)
    assert claimed is not None
    return claimed


def job_of(database: Database, job_id: str) -> JobRow:
    found = database.read_now(jobs.get, None, job_id)
    assert found is not None
    return found


def lose(database: Database, claimed: Claim) -> None:
    """Let a claim's lease be over, as the database sees it."""
    database.run_now(_set_lease, claimed.job.id, -1.0)


def forget_pins(database: Database) -> None:
    """Let everything have been put into the store long ago."""
    database.run_now(_age_blobs)


def older(claimed: Claim) -> Claim:
    """A claim on the same job with the fence before."""
    return replace(claimed, fence=claimed.fence - 1)


def at_once(count: int, fn: Callable[[int], T]) -> list[T]:
    """Call a function in so many threads at the same moment."""
    barrier = Barrier(count)

    def begin(number: int) -> T:
        barrier.wait()
        return fn(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(begin, range(count)))


def execute(database: Database, *statements: Any) -> Sequence[Any]:
    """Execute statements in one transaction and return the last one's rows."""
    return database.run_now(_execute, statements)


def _execute(connection: Connection, statements: Sequence[Any]) -> Sequence[Any]:
    result = None
    for statement in statements:
        result = connection.execute(statement)
    return result.all() if result is not None and result.returns_rows else []


def _set_lease(connection: Connection, job_id: str, from_now_s: float) -> None:
    connection.execute(update(job_table).where(job_table.c.id == job_id).values(lease_until=now() + from_now_s))


def _age_blobs(connection: Connection) -> None:
    connection.execute(update(blob_table).values(created_at=0.0))
