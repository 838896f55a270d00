"""One executor's attempt at one job: from the claim until the job is settled, given back or lost.

Whatever happens, at most one attempt writes: each write carries the claim's fencing number, and one that comes too late
raises. What could not be settled is left to the sweep, which gives it to another executor. A database or a blob store
that does not answer says nothing about a job, so it ends none: what is to be written is tried again, and a job that
cannot be begun is given back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from runner.errors import DatabaseError, LeaseLostError, RunnerError
from runner.provision import Cache
from runner.service import job_token
from runner.service.blobs.store import Blob, BlobStore, StoreUnavailableError
from runner.service.database import blobs as blob_rows
from runner.service.database import jobs
from runner.service.database import settings as settings_rows
from runner.service.database.database import Database
from runner.service.database.rows import Claim
from runner.service.executor.batch import run_batch
from runner.service.executor.confinement import Confinement
from runner.service.executor.inputs import fetch_inputs
from runner.service.executor.lease import Lease
from runner.service.executor.outbox import Entry, Outbox
from runner.service.executor.validating import run_validation
from runner.service.executor.work import Done, Work
from runner.service.http.request_log import NAME
from runner.service.offer import UnknownModelError
from runner.service.settings import Settings
from runner.text import one_line

logger = logging.getLogger(f"{NAME}.executor")

ERROR_CHARS: Final = 1_000
RESULT_BYTES: Final = 1 << 30
"""One result; verdicts and pages are bounded where they are made."""

SETTLE_RETRY_S: Final = 0.5

UNWELL: Final = (DatabaseError, StoreUnavailableError)
"""What a job cannot be blamed for, and what may be over in a moment."""

KINDS: Final[Mapping[str, Callable[[Work], Awaitable[Done]]]] = {"validation": run_validation, "batch": run_batch}


class Attempt:
    """See the module.

    Args:
        claim: The job.
        taken: When it was claimed, by the monotonic clock, before the database was asked.
        database, blobs, settings: The service's.
        confinement: How bundles are confined here.
        cache: Where venvs are kept.
        folder: For this attempt alone; made and removed by it.
    """

    def __init__(
        self,
        claim: Claim,
        *,
        taken: float,
        database: Database,
        blobs: BlobStore,
        settings: Settings,
        confinement: Confinement,
        cache: Cache,
        folder: Path,
    ) -> None:
        self._claim = claim
        self._database = database
        self._blobs = blobs
        self._settings = settings
        self._confinement = confinement
        self._cache = cache
        self._folder = folder
        lease_s = settings.executors.lease_s
        self.lease = Lease(
            partial(database.run, jobs.renew, claim, lease_s),
            lease_s=lease_s,
            job_s=settings.limits.job_s,
            taken=taken,
        )
        self._outbox = Outbox(self._append, settings.limits)
        self.unwell = False
        """Whether the job was given back because the database or the blob store did not answer."""

    async def run(self) -> None:
        """Do the job, and settle it."""
        keeping = asyncio.create_task(self.lease.keep(), name="benchmax-lease")
        writing = asyncio.create_task(self._write(), name="benchmax-events")
        try:
            with contextlib.suppress(LeaseLostError):
                await self._run()
        finally:
            for task in (keeping, writing):
                task.cancel()
            await asyncio.gather(keeping, writing, return_exceptions=True)
            await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    async def _run(self) -> None:
        working = asyncio.create_task(self._work(), name="benchmax-job")
        stopped = asyncio.create_task(self.lease.stopped())
        try:
            await asyncio.wait([working, stopped], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            working.cancel()
            await asyncio.wait([working])
        if self.lease.reason == "lost":
            logger.warning("job %s: its lease is lost, nothing is written", self._claim.job.id)
            if not working.cancelled():
                working.exception()
            return
        await self._settle(working)

    async def _work(self) -> Done:
        job = self._claim.job
        self._folder.mkdir()
        digests = await self._database.run(jobs.inputs, job.id)
        secret = await self._database.run(settings_rows.secret, job_token.SIGNED_WITH)
        inputs = await fetch_inputs(self._blobs, digests, self._folder)
        return await KINDS[job.kind](
            Work(
                job_id=job.id,
                token=job_token.issue(secret, job.id),
                spec=job.spec,
                inputs=inputs,
                folder=self._folder,
                outbox=self._outbox,
                settings=self._settings,
                confinement=self._confinement,
                cache=self._cache,
            )
        )

    async def _settle(self, working: asyncio.Task[Done]) -> None:
        reason = self.lease.reason
        # what a job that is being ended raises is of no interest
        if working.cancelled() or (reason is not None and working.exception() is not None):
            if reason == "drained":
                await self._persist(jobs.give_back)
            elif reason == "cancelled":
                await self._end("cancelled")
            else:
                most = self._settings.limits.job_s
                await self._end("failed", error=f"it was not over after {most:g} s, the most that a job may take")
            return
        failure = working.exception()
        if isinstance(failure, UNWELL):
            logger.warning("job %s is given back: %s", self._claim.job.id, failure)
            self.unwell = True
            await self._persist(jobs.give_back)
            return
        if failure is not None:
            await self._end("failed", error=_told(self._claim.job.id, failure))
            return
        done = working.result()
        kept = {role: (await self._keep(content)).digest for role, content in done.results.items()}
        await self._end("done", judgement=done.judgement, error=done.error or None, blobs=kept)

    async def _end(self, state: str, **facts: object) -> None:
        await self._retried(self._outbox.flush)
        await self._persist(jobs.settle, state=state, **facts)
        logger.info("job %s: %s %s", self._claim.job.id, state, facts.get("judgement") or facts.get("error") or "")

    async def _keep(self, content: bytes) -> Blob:
        async def pin(blob: Blob) -> None:
            await self._database.run(blob_rows.pin, blob.digest, blob.bytes)

        while True:
            try:
                return await self._blobs.put(_pieces(content), max_bytes=RESULT_BYTES, pin=pin)
            except UNWELL as error:
                logger.warning("job %s: its results cannot be stored: %s", self._claim.job.id, error)
                if self.lease.reason is not None:
                    raise
                await asyncio.sleep(SETTLE_RETRY_S)

    async def _write(self) -> None:
        """Write events as they come; what cannot be written now is tried again, what may not be ends the attempt."""
        while True:
            try:
                await self._outbox.run()
            except LeaseLostError:
                self.lease.stop("lost")
                return
            except DatabaseError as error:
                logger.warning("events could not be written: %s", error)
                await asyncio.sleep(SETTLE_RETRY_S)

    async def _append(self, entries: Sequence[Entry]) -> None:
        await self._database.run(jobs.append, self._claim, entries)

    async def _persist(self, write: Callable[..., object], **facts: object) -> None:
        await self._retried(partial(self._database.run, write, self._claim, **facts))

    async def _retried(self, write: Callable[[], Awaitable[object]]) -> None:
        """Write something, again and again while the lease lasts.

        Raises:
            LeaseLostError: somebody else has the job, or may have.
        """
        while True:
            try:
                await write()
                return
            except LeaseLostError:
                self.lease.stop("lost")
                raise
            except DatabaseError as error:
                logger.warning("job %s cannot be written: %s", self._claim.job.id, error)
                if not self.lease.is_good:
                    raise
                await asyncio.sleep(SETTLE_RETRY_S)


async def _pieces(content: bytes) -> AsyncIterator[bytes]:
    yield content


def _told(job_id: str, failure: BaseException) -> str:
    """Say why a job failed, to somebody who knows nothing of this machine."""
    if isinstance(failure, RunnerError | UnknownModelError):
        logger.warning("job %s failed: %s", job_id, failure)
        return one_line(str(failure), ERROR_CHARS)
    # a mistake of ours, or of this machine: its text is for whoever runs the service
    logger.error("job %s failed", job_id, exc_info=failure)
    return f"the executor failed: {type(failure).__name__}. Its log has more."
