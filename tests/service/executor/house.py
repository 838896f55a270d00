"""A service without its HTTP server: a database, blobs, and executors as processes of their own."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmax.bundle import Bundle, dump_bundle
from runner.artifact import METADATA_NAME, PICKLE_NAME, write_artifact
from runner.service.blobs.disk import DiskBlobs
from runner.service.blobs.store import Blob
from runner.service.configuration import variables_of
from runner.service.database import blobs as blob_rows
from runner.service.database import events, jobs, keys
from runner.service.database.database import Database
from runner.service.database.rows import EventRow, JobRow, Kind
from runner.service.settings import Settings
from tests.service.executor import environments
from tests.service.nursery import Child, Nursery
from tests.validation.zoo import sound

PATIENCE_S = 90.0
ATTEMPTS = 10
"""On a machine that has much else to do, short leases may be lost more than once."""


def bundle_of(name: str, **arguments: object) -> Bundle:
    """Bundle an environment for tests, its modules by value."""
    return dump_bundle(getattr(environments, name), constructor_args=arguments, local_modules=[sound, environments])


@dataclass
class ExecutorProcess:
    """An executor.

    Args:
        process: It.
        log: What it has said.
    """

    process: Child
    log: Path

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ended(self) -> int:
        """Wait for its end; return the exit code."""
        return self.process.wait(PATIENCE_S)


@dataclass
class House:
    """See the module.

    Args:
        folder: Where everything is.
        settings: The service's.
        database: Its database.
        cache: Where venvs are kept.
        nursery: Starts executors.
    """

    folder: Path
    settings: Settings
    database: Database
    cache: Path
    nursery: Nursery
    key_id: str = ""
    tenant_id: str = ""
    count: int = field(default=0)

    def __post_init__(self) -> None:
        key, _ = self.database.run_now(
            keys.create,
            tenant="acme",
            name="tests",
            scopes={"submit", "read"},
            max_bytes=1 << 30,
            max_jobs=10,
            max_running=4,
            requests_per_minute=1000,
        )
        self.key_id, self.tenant_id = key.id, key.tenant_id

    async def store(self, content: bytes) -> str:
        """Put something into the blob store."""

        async def pieces() -> AsyncIterator[bytes]:
            yield content

        async def pin(blob: Blob) -> None:
            await self.database.run(blob_rows.pin, blob.digest, blob.bytes)

        blobs = DiskBlobs(Path(self.settings.blobs_url.removeprefix("file://")))
        return (await blobs.put(pieces(), max_bytes=1 << 30, pin=pin)).digest

    async def content(self, digest: str | None) -> bytes:
        """Return what the blob store has."""
        assert digest is not None
        blobs = DiskBlobs(Path(self.settings.blobs_url.removeprefix("file://")))
        return b"".join([piece async for piece in blobs.open(digest)])

    async def submit(
        self, source: Bundle | Path, kind: Kind = "validation", *, data: Mapping[str, str] | None = None, **spec: Any
    ) -> JobRow:
        """Put a job into the queue."""
        folder = source if isinstance(source, Path) else self.folder / f"artifact-{self.count}"
        self.count += 1
        if isinstance(source, Bundle):
            write_artifact(source, folder)
        inputs = {
            "pickle": await self.store((folder / PICKLE_NAME).read_bytes()),
            "metadata": await self.store((folder / METADATA_NAME).read_bytes()),
        }
        for path, text in (data or {}).items():
            inputs[f"data/{path}"] = await self.store(text.encode())
        asked = {"split": "eval", **spec}
        if kind == "batch":
            asked = {"model": "m", "group_size": 2, "max_in_flight": 2, "max_context_tokens": 2048, **asked}
        return await self.database.run(
            jobs.submit,
            tenant_id=self.tenant_id,
            key_id=self.key_id,
            kind=kind,
            name="a job",
            spec=asked,
            inputs=inputs,
            max_attempts=ATTEMPTS,
        )

    @contextmanager
    def executor(self, *, watch: int | None = None) -> Iterator[ExecutorProcess]:
        """Have an executor for the length of the context."""
        self.count += 1
        path = self.folder / f"executor-{self.count}.log"
        watching = [] if watch is None else ["--watch-fd", str(watch)]
        with path.open("wb") as log:
            process = self.nursery.start(
                "runner.service.executor",
                *watching,
                env={**os.environ, **variables_of(self.settings), "BENCHMAX_CACHE_DIR": str(self.cache)},
                stdout=log,
                stderr=log,
                pass_fds=[] if watch is None else [watch],
            )
            try:
                yield ExecutorProcess(process, path)
            finally:
                if process.poll() is None:
                    process.send_signal(signal.SIGCONT)
                    process.terminate()
                    try:
                        process.wait(PATIENCE_S)
                    finally:
                        process.kill()
                        process.wait()

    async def job(self, job: JobRow) -> JobRow:
        """Return a job as it is now."""
        found = await self.database.read(jobs.get, None, job.id)
        assert found is not None
        return found

    async def over(self, job: JobRow) -> JobRow:
        """Return a job when it is over."""
        return await self.when(job, lambda now: now.state in ("done", "failed", "cancelled"), what="its end")

    async def when(self, job: JobRow, reached: Callable[[JobRow], bool], *, what: str) -> JobRow:
        """Return a job when something is so."""
        deadline = time.monotonic() + PATIENCE_S
        while not reached(now := await self.job(job)):
            assert time.monotonic() < deadline, f"waited {PATIENCE_S} s for {what}: {now}"
            await asyncio.sleep(0.02)
        return now

    async def events(self, job: JobRow) -> list[EventRow]:
        """Return the events of a job."""
        return await self.database.read(events.after, {job.id: 0}, limit=10_000)

    async def told(self, job: JobRow, kind: str) -> list[dict[str, Any]]:
        """Return what events of a kind say."""
        return [json.loads(event.body) for event in await self.events(job) if event.kind == kind]


async def seen(event: Any, *, what: str) -> None:
    """Wait for an event of threads."""
    assert await asyncio.to_thread(event.wait, PATIENCE_S), f"waited {PATIENCE_S} s for {what}"
