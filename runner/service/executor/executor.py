"""An executor: claims one job after the other, does it and settles it, until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import time
from pathlib import Path
from typing import Final

from runner.errors import DatabaseError
from runner.provision import Cache
from runner.service.blobs.store import BlobStore
from runner.service.database import executors, jobs
from runner.service.database.database import Database
from runner.service.executor.attempt import Attempt
from runner.service.executor.confinement import Confinement
from runner.service.http.request_log import NAME
from runner.service.settings import Settings

logger = logging.getLogger(f"{NAME}.executor")

IDLE_S: Final = 0.2
"""Between two looks for a job; it is what a job waits for at least half of."""

TROUBLE_S: Final = 2.0
"""After a look that failed: a database that does not answer is not asked more often."""

SEEN_S: Final = 10.0
"""Between two signs of life, and between two sweeps for jobs whose executors are gone."""


class Executor:
    """See the module.

    Args:
        database, blobs, settings: The service's.
        confinement: How bundles are confined here.
        cache: Where venvs are kept.
        folder: Its private folder.
    """

    def __init__(
        self,
        *,
        database: Database,
        blobs: BlobStore,
        settings: Settings,
        confinement: Confinement,
        cache: Cache,
        folder: Path,
    ) -> None:
        self._database = database
        self._blobs = blobs
        self._settings = settings
        self._confinement = confinement
        self._cache = cache
        self._folder = folder
        self._stopping = asyncio.Event()
        self._attempt: Attempt | None = None
        self._count = 0

    def stop(self, grace_s: float) -> None:
        """Take no further job, and end.

        Args:
            grace_s: How long the job under way may still take before it is given back, in seconds.
        """
        self._stopping.set()
        asyncio.get_running_loop().call_later(grace_s, self._give_up)

    def _give_up(self) -> None:
        if self._attempt is not None:
            self._attempt.lease.stop("drained")

    async def run(self) -> None:
        """Work until told to stop.

        Raises:
            DatabaseError: the database could not be told of this executor at its start.
        """
        database = self._database
        executor_id = await database.run(executors.register, host=socket.gethostname(), pid=os.getpid())
        logger.info("executor %s takes jobs", executor_id)
        alive = asyncio.create_task(self._live(executor_id), name="benchmax-alive")
        try:
            while not self._stopping.is_set():
                await self._next(executor_id)
        finally:
            alive.cancel()
            await asyncio.wait([alive])
            # the others find out by themselves
            with contextlib.suppress(DatabaseError):
                await database.run(executors.stopped, executor_id)
            logger.info("executor %s has ended", executor_id)

    async def _next(self, executor_id: str) -> None:
        """Do the next job, or wait a moment."""
        taken = time.monotonic()
        try:
            claim = await self._database.run(jobs.claim, executor_id, self._settings.executors.lease_s)
        except DatabaseError as error:
            logger.warning("no job could be looked for: %s", error)
            await self._pause(TROUBLE_S)
            return
        if claim is None:
            await self._pause(IDLE_S)
            return
        self._count += 1
        logger.info("job %s: %s, attempt %d", claim.job.id, claim.job.kind, claim.job.attempts)
        self._attempt = Attempt(
            claim,
            taken=taken,
            database=self._database,
            blobs=self._blobs,
            settings=self._settings,
            confinement=self._confinement,
            cache=self._cache,
            folder=self._folder / f"job-{self._count}",
        )
        try:
            await self._attempt.run()
            if self._attempt.unwell:
                await self._pause(TROUBLE_S)
        except Exception:
            # it is swept when its lease is over; the next job may fare better
            logger.exception("job %s could not be settled", claim.job.id)
            await self._pause(TROUBLE_S)
        finally:
            self._attempt = None

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)

    async def _live(self, executor_id: str) -> None:
        """Say now and then that this executor is there, and look for jobs of those that are not."""
        # as often as a lease can end
        pause = min(SEEN_S, self._settings.executors.lease_s / 2)
        while True:
            try:
                await self._database.run(executors.seen, executor_id)
                await self._database.run(jobs.sweep)
            except DatabaseError as error:
                logger.warning("lost jobs could not be looked for: %s", error)
            await asyncio.sleep(pause)
