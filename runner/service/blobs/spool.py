"""A file that is being written from what comes over the network: counted, digested, and gone unless it is kept."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor
from pathlib import Path
from typing import ParamSpec

from runner.service.blobs.store import CHUNK_BYTES, STALE_S, Blob, Intake, StoreUnavailableError

P = ParamSpec("P")


@contextlib.asynccontextmanager
async def spooled(
    chunks: AsyncIterator[bytes],
    folder: Path,
    threads: Executor,
    *,
    max_bytes: int,
    expected_sha256: str | None,
) -> AsyncIterator[tuple[Blob, Path]]:
    """Write everything to a new file that is on disk when it is given, and gone at the end where it is still there.

    Args:
        chunks: The bytes.
        folder: Where the file is made.
        threads: Where files are written and digests made.
        max_bytes: How many there may be.
        expected_sha256: What they have to be.

    Raises:
        TooLargeError: there are more.
        DigestMismatchError: they are something else.
        StoreUnavailableError: the file cannot be written.
    """
    intake = Intake(max_bytes)
    handle, path = await _created(folder, threads)
    try:
        try:
            held = bytearray()
            # what `chunks` raises is none of the file's errors, though it may be of the same type
            async for chunk in chunks:
                intake.announce(len(chunk))
                held += chunk
                if len(held) >= CHUNK_BYTES:
                    await _done(folder, threads, _write, handle, held, intake)
                    held = bytearray()
            await _done(folder, threads, _write, handle, held, intake)
            blob = intake.finish(expected_sha256)
            await _done(folder, threads, os.fsync, handle)
        finally:
            os.close(handle)
        yield blob, path
    finally:
        # a rename may have taken it; at once, since a task that is being cancelled should not wait
        path.unlink(missing_ok=True)


async def _created(folder: Path, threads: Executor) -> tuple[int, Path]:
    creating = asyncio.get_running_loop().run_in_executor(threads, _create, folder)
    try:
        handle, name = await asyncio.shield(creating)
    except asyncio.CancelledError:
        with contextlib.suppress(OSError):
            handle, name = await creating
            os.close(handle)
            Path(name).unlink()  # noqa: ASYNC240
        raise
    except OSError as error:
        raise unavailable(folder, error) from error
    return handle, Path(name)


async def _done(folder: Path, threads: Executor, work: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
    """Have a thread do something, and wait also when cancelled: its descriptor must not be closed under it."""
    doing = asyncio.get_running_loop().run_in_executor(threads, lambda: work(*args, **kwargs))
    try:
        await asyncio.shield(doing)
    except asyncio.CancelledError:
        with contextlib.suppress(OSError):
            await doing
        raise
    except OSError as error:
        raise unavailable(folder, error) from error


def _create(folder: Path) -> tuple[int, str]:
    return tempfile.mkstemp(dir=folder, prefix="incoming-")


def _write(handle: int, data: bytearray, intake: Intake) -> None:
    intake.digest(data)
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


def sweep(folder: Path) -> None:
    """Delete what writers that are long gone have left in a folder."""
    oldest = time.time() - STALE_S
    for path in folder.glob("incoming-*"):
        # another process may do the same
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_mtime < oldest:
                path.unlink()


def unavailable(where: Path, error: OSError) -> StoreUnavailableError:
    """Return an error of the file system as one of the store."""
    return StoreUnavailableError(f"the blob store at {where} failed: {error.strerror or error}")
