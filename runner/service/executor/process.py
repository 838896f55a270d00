"""The process of an executor: what is tried out and opened at its start, and how it is told to end."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from runner.provision import Cache
from runner.service.blobs.belonging import check_belongs
from runner.service.blobs.opening import open_blobs
from runner.service.database.database import Database
from runner.service.executor.confinement import Confinement, confinement
from runner.service.executor.executor import Executor
from runner.service.executor.folder import work_folder
from runner.service.http.request_log import NAME, log_to
from runner.service.settings import Settings

logger = logging.getLogger(f"{NAME}.executor")

ORPHAN_S: Final = 10.0
"""How long an executor whose server is gone may take to give its job back; workers end with it in any case."""


def execute(settings: Settings, *, watch_fd: int | None = None) -> int:
    """Be an executor until SIGTERM or SIGINT; return the exit code.

    The job under way may take `limits.drain_s` more; then, and at a second signal, it is given back.

    Args:
        settings: The service's.
        watch_fd: Descriptor of a pipe; when its other end is closed, the executor gives its job back and ends.

    Raises:
        SandboxUnavailableError: uploads cannot be confined on this machine.
        UsageError: the database or the blob store cannot be meant.
    """
    handler = log_to(sys.stderr)
    try:
        with work_folder(settings.server.data / "executors") as folder:
            # there, so that nothing of it stays where this process is killed meanwhile
            confined = confinement(settings)
            asyncio.run(_run(settings, confined, folder, watch_fd))
    finally:
        logging.getLogger(NAME).removeHandler(handler)
    return 0


async def _run(settings: Settings, confined: Confinement, folder: Path, watch_fd: int | None) -> None:
    loop = asyncio.get_running_loop()
    blobs = open_blobs(settings.blobs_url)
    database = await asyncio.to_thread(Database.open, settings.database_url)
    try:
        await check_belongs(blobs, database)
        executor = Executor(
            database=database,
            blobs=blobs,
            settings=settings,
            confinement=confined,
            cache=Cache(),
            folder=folder,
        )
        told = False

        def on_signal() -> None:
            nonlocal told
            executor.stop(0.0 if told else settings.limits.drain_s)
            told = True

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, on_signal)
        if watch_fd is not None:
            watch(watch_fd, lambda: loop.call_soon_threadsafe(executor.stop, 0.0))
        await executor.run()
    finally:
        await asyncio.to_thread(database.close)
        await blobs.aclose()


def watch(descriptor: int, orphaned: Callable[[], object]) -> None:
    """Have something done when the other end of a pipe is closed, and the process ended soon after.

    Args:
        descriptor: This end.
        orphaned: Called in a thread.
    """

    def wait() -> None:
        # nothing is ever written
        os.read(descriptor, 1)
        logger.warning("the server is gone")
        # a loop that does not turn any more is no reason to stay
        timer = threading.Timer(ORPHAN_S, os._exit, [1])
        timer.daemon = True
        timer.start()
        orphaned()

    threading.Thread(target=wait, name="benchmax-watch", daemon=True).start()
