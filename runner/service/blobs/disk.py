"""Blobs in a folder, for one machine.

<folder>/identity            which store this is
<folder>/incoming/           what is being written
<folder>/<ab>/<abcdef…>      the blobs, below the first two digits of their digests

What is being written is on the same file system, so that a rename publishes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import secrets
import shutil
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, ParamSpec, TypeVar

from runner.service.blobs.spool import spooled, sweep, unavailable
from runner.service.blobs.store import (
    CHUNK_BYTES,
    Blob,
    BlobMissingError,
    DigestMismatchError,
    Pin,
    check_digest,
)

THREADS: Final = 8
"""Files that are read and written at the same time; a disk is no faster with more."""

P = ParamSpec("P")
T = TypeVar("T")


class DiskBlobs:
    """A folder with blobs.

    Args:
        folder: Which; it is made when it is not there.

    Raises:
        StoreUnavailableError: it cannot be.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._incoming = folder / "incoming"
        with self._failing():
            self._incoming.mkdir(parents=True, exist_ok=True, mode=0o700)
            sweep(self._incoming)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="blobs")

    async def put(
        self,
        chunks: AsyncIterator[bytes],
        *,
        max_bytes: int,
        expected_sha256: str | None = None,
        pin: Pin | None = None,
    ) -> Blob:
        """Store what comes; see `BlobStore`."""
        async with spooled(
            chunks, self._incoming, self._threads, max_bytes=max_bytes, expected_sha256=expected_sha256
        ) as (blob, path):
            if pin is not None:
                await pin(blob)
            await self._do(self._publish, path, blob.digest)
            return blob

    async def open(self, digest: str) -> AsyncIterator[bytes]:
        """Read a blob; see `BlobStore`."""
        handle = await self._do(self._open, digest)
        try:
            while data := await self._do(os.read, handle, CHUNK_BYTES):
                yield data
        finally:
            os.close(handle)

    async def size(self, digest: str) -> int:
        """Return how many bytes a blob has; see `BlobStore`."""
        return await self._do(self._size, digest)

    async def fetch(self, digest: str, path: Path) -> None:
        """Write a blob to a new file; see `BlobStore`."""
        await self._do(self._fetch, digest, path)

    async def has(self, digest: str) -> bool:
        """Return whether there is such a blob; see `BlobStore`."""
        return await self._do(self._path(digest).is_file)

    async def delete(self, digest: str) -> None:
        """Delete a blob; see `BlobStore`."""
        await self._do(self.remove_now, (digest,))

    def remove_now(self, digests: Iterable[str]) -> None:
        """Delete blobs, blocking; see `BlobStore`."""
        with self._failing():
            for digest in digests:
                self._path(digest).unlink(missing_ok=True)

    async def check(self) -> None:
        """Find out whether the store works; see `BlobStore`."""
        await self._do(self._check)

    async def identity(self) -> str:
        """Return the store's id; see `BlobStore`."""
        return await self._do(self._identity)

    async def aclose(self) -> None:
        """End the threads; see `BlobStore`."""
        await asyncio.to_thread(self._threads.shutdown)

    async def _do(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        def run() -> T:
            with self._failing():
                return work(*args, **kwargs)

        return await asyncio.get_running_loop().run_in_executor(self._threads, run)

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except FileExistsError:
            raise
        except OSError as error:
            raise unavailable(self._folder, error) from error

    def _path(self, digest: str) -> Path:
        return self._folder / check_digest(digest)[:2] / digest

    def _publish(self, written: Path, digest: str) -> None:
        path = self._path(digest)
        path.parent.mkdir(exist_ok=True, mode=0o700)
        written.replace(path)
        # the name, and that of its folder, must be on disk before the database says that they are
        for folder in (path.parent, self._folder):
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)

    def _open(self, digest: str) -> int:
        try:
            return os.open(self._path(digest), os.O_RDONLY)
        except FileNotFoundError:
            raise _missing(digest) from None

    def _size(self, digest: str) -> int:
        try:
            return self._path(digest).stat().st_size
        except FileNotFoundError:
            raise _missing(digest) from None

    def _fetch(self, digest: str, path: Path) -> None:
        found = hashlib.sha256()
        with os.fdopen(self._open(digest), "rb", buffering=0) as source, path.open("xb", buffering=0) as target:
            while data := source.read(CHUNK_BYTES):
                found.update(data)
                target.write(data)
        if found.hexdigest() != digest:
            path.unlink()
            raise DigestMismatchError(f"the blob {digest} in {self._folder} has other content than its name says")

    def _check(self) -> None:
        probe = self._incoming / f"incoming-{secrets.token_hex(8)}"
        probe.write_bytes(b"probe")
        try:
            if probe.read_bytes() != b"probe":
                raise OSError("what was written is not what is read")
        finally:
            probe.unlink()
        if shutil.disk_usage(self._folder).free < MIN_FREE_BYTES:
            raise OSError(f"less than {MIN_FREE_BYTES >> 20} MiB are free")

    def _identity(self) -> str:
        path = self._folder / "identity"
        while True:
            with contextlib.suppress(FileNotFoundError):
                return path.read_text("ascii").strip()
            fresh = self._incoming / f"incoming-{secrets.token_hex(8)}"
            fresh.write_text(secrets.token_hex(16), "ascii")
            # whoever is first wins, and nobody reads half of it
            with contextlib.suppress(FileExistsError):
                path.hardlink_to(fresh)
            fresh.unlink()


MIN_FREE_BYTES: Final = 64 * 1024 * 1024
"""Below which a store is not ready for uploads: what is under way could not be finished."""


def _missing(digest: str) -> BlobMissingError:
    return BlobMissingError(f"there is no blob {digest}")
