"""The executors that a server starts beside itself: kept running as long as it runs, and never longer.

Each holds the reading end of a pipe whose other end only the server has, so that all of them notice when it is gone,
however it went.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import time
from types import TracebackType
from typing import Final, Self

from runner.service.configuration import variables_of
from runner.service.http.request_log import NAME
from runner.service.settings import Settings

logger = logging.getLogger(f"{NAME}.executors")

FIRST_PAUSE_S: Final = 0.5
"""Before an executor that has ended is started again; doubled each time."""

LONGEST_PAUSE_S: Final = 30.0
STEADY_S: Final = 60.0
"""An executor that has run for so long has not failed to start."""

END_S: Final = 15.0
"""How long an executor may take to end beyond the time that it has for its job."""


class Supervisor:
    """Executors of a server; use as an asynchronous context manager.

    Args:
        settings: The service's, which they get in their environment.
        count: How many.
    """

    def __init__(self, settings: Settings, count: int) -> None:
        self._settings = settings
        self._count = count
        self._pipe: tuple[int, int] | None = None
        self._running: set[asyncio.subprocess.Process] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._ending = asyncio.Event()

    @property
    def pids(self) -> list[int]:
        """Process ids of those that run now."""
        return sorted(process.pid for process in self._running if process.returncode is None)

    async def __aenter__(self) -> Self:
        self._pipe = os.pipe2(os.O_CLOEXEC)
        for number in range(self._count):
            self._tasks.append(asyncio.create_task(self._keep(), name=f"benchmax-executor-{number}"))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ending.set()
        for process in self._running:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
        try:
            if self._tasks:
                _, slow = await asyncio.wait(self._tasks, timeout=self._settings.limits.drain_s + END_S)
                for task in slow:
                    task.cancel()
                if slow:
                    await asyncio.wait(slow)
        finally:
            assert self._pipe is not None
            for descriptor in self._pipe:
                os.close(descriptor)
            self._pipe = None

    async def _keep(self) -> None:
        """Have one executor running."""
        pause = FIRST_PAUSE_S
        while not self._ending.is_set():
            began = time.monotonic()
            code = await self._run()
            if self._ending.is_set():
                return
            if time.monotonic() - began >= STEADY_S:
                pause = FIRST_PAUSE_S
            logger.warning("an executor has ended with code %d and is started again in %g s", code, pause)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), pause)
            pause = min(pause * 2, LONGEST_PAUSE_S)

    async def _run(self) -> int:
        """Start an executor and wait for its end; return its exit code."""
        assert self._pipe is not None
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "runner.service.executor",
            "--watch-fd",
            str(self._pipe[0]),
            stdin=asyncio.subprocess.DEVNULL,
            pass_fds=[self._pipe[0]],
            env={**os.environ, **variables_of(self._settings)},
            # an interrupt at the terminal is the server's to pass on
            start_new_session=True,
        )
        self._running.add(process)
        try:
            if self._ending.is_set():
                process.send_signal(signal.SIGTERM)
            return await process.wait()
        finally:
            self._running.discard(process)
            if process.returncode is None:
                process.kill()
                await process.wait()
