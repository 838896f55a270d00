"""A `ProcessPoolExecutor` of one process. Its start method is in `BENCHMARK_METHOD`."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager
from multiprocessing import get_context

from scripts.benchmarks.drivers import pooled
from scripts.benchmarks.drivers.load import RunGroup, drive


@asynccontextmanager
async def futures() -> AsyncIterator[RunGroup]:
    """The pool."""
    context = get_context(os.environ["BENCHMARK_METHOD"])
    with ProcessPoolExecutor(1, mp_context=context, initializer=pooled.start) as executor:
        yield pooled.through(executor.submit)


if __name__ == "__main__":
    drive(futures)
