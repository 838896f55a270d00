"""What a server does beside answering: it deletes what has grown old, and takes jobs from executors that are lost."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from runner.errors import DatabaseError
from runner.service.blobs.store import BlobError
from runner.service.database import jobs
from runner.service.database.retention import Policy, expire
from runner.service.http.state import ServiceState
from runner.service.settings import RetentionSettings

EVERY_S: Final = 300.0
DAY_S: Final = 86_400.0


SWEEP_S: Final = 10.0
"""Between two looks for jobs whose executors are gone; executors look, too, but there may be none left."""


async def keep_house(state: ServiceState) -> None:
    """Do both, again and again, until cancelled.

    Several servers of one service may do so: each does a part. A failure is logged, and the next time may be better.
    """
    async with asyncio.TaskGroup() as group:
        group.create_task(_expire(state))
        group.create_task(_sweep(state))


async def _expire(state: ServiceState) -> None:
    """Delete what is older than the settings say."""
    policy = policy_of(state.settings.retention)
    while True:
        try:
            # one transaction deletes no more than so much
            while removed := await state.database.run(expire, policy, state.blobs.remove_now):
                state.log.tell(logging.INFO, "retention", blobs=len(removed))
        except (DatabaseError, BlobError) as error:
            state.log.tell(logging.WARNING, "retention", error=str(error))
        await asyncio.sleep(EVERY_S)


async def _sweep(state: ServiceState) -> None:
    """Put jobs of lost executors back into the queue, or end them."""
    while True:
        try:
            for job in await state.database.run(jobs.sweep):
                state.log.tell(logging.WARNING, "executor-lost", job=job.id, state=job.state, attempts=job.attempts)
        except DatabaseError as error:
            state.log.tell(logging.WARNING, "sweep", error=str(error))
        await asyncio.sleep(min(SWEEP_S, state.settings.executors.lease_s))


def policy_of(settings: RetentionSettings) -> Policy:
    """Return for how long what is kept."""
    return Policy(
        jobs_s=settings.jobs_days * DAY_S,
        uploads_s=settings.uploads_days * DAY_S,
        audit_s=settings.audit_days * DAY_S,
    )
