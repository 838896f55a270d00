"""A loky executor of one process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import loky

from scripts.benchmarks.drivers import pooled
from scripts.benchmarks.drivers.load import RunGroup, drive


@asynccontextmanager
async def executor() -> AsyncIterator[RunGroup]:
    """The executor."""
    pool = loky.ProcessPoolExecutor(1, initializer=pooled.start)
    try:
        yield pooled.through(pool.submit)
    finally:
        pool.shutdown(kill_workers=True)


if __name__ == "__main__":
    drive(executor)
