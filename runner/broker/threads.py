"""A few threads for credential sources that block. They end when there is nothing to do, and keep no process alive."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from runner.limits import PROVIDER_THREADS


@dataclass(slots=True)
class _Job:
    work: Callable[[], Any]
    context: contextvars.Context
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[tuple[Any, BaseException | None]]


class ThreadCrew:
    """Runs functions in at most so many threads at once.

    A thread cannot be stopped: one whose caller has given up goes on until its function returns, as a daemon.

    Args:
        size: Threads at most.
    """

    def __init__(self, size: int = PROVIDER_THREADS) -> None:
        self._size = size
        self._threads = 0
        self._jobs: deque[_Job] = deque()
        self._lock = threading.Lock()

    async def run(self, work: Callable[[], Any]) -> Any:
        """Run a function in a thread, in a copy of this task's context; return or raise what it does."""
        loop = asyncio.get_running_loop()
        job = _Job(work, contextvars.copy_context(), loop, loop.create_future())
        with self._lock:
            self._jobs.append(job)
            fresh = self._threads < self._size
            self._threads += fresh
        if fresh:
            self._start()
        value, error = await job.future
        if error is not None:
            raise error
        return value

    def _start(self) -> None:
        try:
            threading.Thread(target=self._work, name="benchmax-credentials", daemon=True).start()
        except RuntimeError:
            # no more threads can be had; one that runs already will do it
            with self._lock:
                self._threads -= 1
                if not self._threads:
                    self._jobs.clear()
                    raise

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._jobs:
                    self._threads -= 1
                    return
                job = self._jobs.popleft()
            if job.future.cancelled():
                continue
            result: tuple[Any, BaseException | None]
            try:
                result = (job.context.run(job.work), None)
            except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
                result = (None, error)
            # a loop that was closed meanwhile has nobody left who waits
            with contextlib.suppress(RuntimeError):
                job.loop.call_soon_threadsafe(_deliver, job.future, result)
            # an exception's frames, and what they hold, must not live until the next job
            del job, result


def _deliver(
    future: asyncio.Future[tuple[Any, BaseException | None]], result: tuple[Any, BaseException | None]
) -> None:
    if not future.done():
        future.set_result(result)
