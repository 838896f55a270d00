"""The lease of one job: renewed as long as it is worked on, and the reason why work on it has to stop."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final, Literal

from runner.errors import DatabaseError, LeaseLostError
from runner.service.http.request_log import NAME

Reason = Literal["cancelled", "lost", "drained", "timeout"]

logger = logging.getLogger(f"{NAME}.executor")

RENEW_S: Final = 1.0
"""Between two renewals at most, which is also how long a cancellation takes to be seen."""


class Lease:
    """Renews the lease of a job, and says when to stop.

    Args:
        renew: Renews it for `lease_s` from now; returns whether the job is to be cancelled. Raises `LeaseLostError`,
            or whatever a database that does not answer raises.
        lease_s: How long it is good after each renewal, in seconds.
        job_s: How long the job may run, in seconds.
        taken: When it was claimed, by the monotonic clock, before the database was asked.
    """

    def __init__(self, renew: Callable[[], Awaitable[bool]], *, lease_s: float, job_s: float, taken: float) -> None:
        self._renew = renew
        self._lease_s = lease_s
        self._good_until = taken + lease_s
        self._job_until = taken + job_s
        self._stopping: asyncio.Future[Reason] = asyncio.get_running_loop().create_future()

    @property
    def reason(self) -> Reason | None:
        """Why work has to stop; `None` while it may go on."""
        return self._stopping.result() if self._stopping.done() else None

    @property
    def is_good(self) -> bool:
        """Whether nobody else can have the job, as far as this process's clock can tell."""
        return self.reason != "lost" and time.monotonic() < self._good_until

    def stop(self, reason: Reason) -> None:
        """Have work stopped; the first reason counts, except that what is lost is lost."""
        if not self._stopping.done():
            self._stopping.set_result(reason)
        elif reason == "lost" and self._stopping.result() != "lost":
            self._stopping = asyncio.get_running_loop().create_future()
            self._stopping.set_result(reason)

    async def stopped(self) -> Reason:
        """Wait until work has to stop."""
        return await asyncio.shield(self._stopping)

    async def keep(self) -> None:
        """Renew the lease again and again, until it is lost or this is cancelled."""
        pause = min(RENEW_S, self._lease_s / 4)
        while True:
            await asyncio.sleep(pause)
            asked = time.monotonic()
            try:
                async with asyncio.timeout(max(0.0, self._good_until - asked)):
                    cancel = await self._renew()
            except LeaseLostError:
                self.stop("lost")
                return
            except (DatabaseError, TimeoutError) as error:
                # a database that does not answer may be back before anybody else could have the job
                logger.warning("the lease could not be renewed: %s", error)
                if time.monotonic() >= self._good_until:
                    self.stop("lost")
                    return
                continue
            self._good_until = asked + self._lease_s
            if cancel:
                self.stop("cancelled")
            if time.monotonic() >= self._job_until:
                self.stop("timeout")
