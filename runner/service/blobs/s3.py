"""Blobs in a bucket, for several machines. What comes is spooled to a local file first: its name is its digest."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
from collections.abc import AsyncIterator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError
from obstore.store import S3Store

from runner.service.blobs.spool import spooled, sweep
from runner.service.blobs.store import (
    CHUNK_BYTES,
    Blob,
    BlobMissingError,
    DigestMismatchError,
    Pin,
    StoreUnavailableError,
    check_digest,
)

if TYPE_CHECKING:
    from obstore.store import S3Config

THREADS: Final = 8
"""Spool files that are written at the same time."""

RETRIES: Final = 4
"""Of a request that failed in a way that may pass, within `RETRY_S`."""

RETRY_S: Final = 30.0
REQUEST_S: Final = 60.0
CONNECT_S: Final = 10.0

_MISSING: Final = (NotFoundError, FileNotFoundError)
"""The store has an error of its own, and raises the built-in one."""


class S3Blobs:
    """A bucket with blobs, or what of it is below a prefix.

    Args:
        bucket: Its name.
        prefix: Of all names, without a final slash; empty for none.
        endpoint: Of a server that is not Amazon's; `None` for theirs.
        region: The bucket's; that of the environment when `None`.
        spool: Folder for what is being uploaded.

    Raises:
        StoreUnavailableError: the configuration cannot be meant.
    """

    def __init__(self, bucket: str, prefix: str, *, endpoint: str | None, region: str | None, spool: Path) -> None:
        self._name = f"s3://{bucket}/{prefix}" if prefix else f"s3://{bucket}"
        self._spool = spool
        spool.mkdir(parents=True, exist_ok=True, mode=0o700)
        sweep(spool)
        config: S3Config = {}
        if endpoint is not None:
            config["endpoint"] = endpoint
        if region is not None:
            config["region"] = region
        with self._failing():
            self._store = S3Store(
                bucket,
                prefix=prefix or None,
                config=config,
                client_options={
                    "allow_http": endpoint is not None and endpoint.startswith("http://"),
                    "timeout": timedelta(seconds=REQUEST_S),
                    "connect_timeout": timedelta(seconds=CONNECT_S),
                },
                retry_config={"max_retries": RETRIES, "retry_timeout": timedelta(seconds=RETRY_S)},
            )
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
            chunks, self._spool, self._threads, max_bytes=max_bytes, expected_sha256=expected_sha256
        ) as (blob, path):
            if pin is not None:
                await pin(blob)
            with self._failing():
                if not await self._is_there(blob):
                    await obstore.put_async(self._store, _key(blob.digest), path)
            return blob

    async def open(self, digest: str) -> AsyncIterator[bytes]:
        """Read a blob; see `BlobStore`."""
        with self._failing(digest):
            found = await obstore.get_async(self._store, _key(digest))
            async for data in found.stream(CHUNK_BYTES):
                yield bytes(data)

    async def size(self, digest: str) -> int:
        """Return how many bytes a blob has; see `BlobStore`."""
        with self._failing(digest):
            return (await obstore.head_async(self._store, _key(digest)))["size"]

    async def fetch(self, digest: str, path: Path) -> None:
        """Write a blob to a new file; see `BlobStore`."""
        loop = asyncio.get_running_loop()
        found = hashlib.sha256()
        with path.open("xb", buffering=0) as target:

            def write(data: bytes) -> None:
                found.update(data)
                target.write(data)

            try:
                async for data in self.open(digest):
                    await asyncio.shield(loop.run_in_executor(self._threads, write, data))
            except BaseException:
                path.unlink()  # noqa: ASYNC240 - a file of this machine
                raise
        if found.hexdigest() != digest:
            path.unlink()  # noqa: ASYNC240 - a file of this machine
            raise DigestMismatchError(f"the blob {digest} in {self._name} has other content than its name says")

    async def has(self, digest: str) -> bool:
        """Return whether there is such a blob; see `BlobStore`."""
        try:
            await self.size(digest)
        except BlobMissingError:
            return False
        return True

    async def delete(self, digest: str) -> None:
        """Delete a blob; see `BlobStore`."""
        with self._failing(), contextlib.suppress(*_MISSING):
            await obstore.delete_async(self._store, _key(digest))

    def remove_now(self, digests: Iterable[str]) -> None:
        """Delete blobs, blocking; see `BlobStore`."""
        with self._failing():
            obstore.delete(self._store, [_key(digest) for digest in digests])

    async def check(self) -> None:
        """Find out whether the store works; see `BlobStore`."""
        key = f"probes/{secrets.token_hex(8)}"
        with self._failing():
            await obstore.put_async(self._store, key, b"probe")
            found = bytes(await (await obstore.get_async(self._store, key)).bytes_async())
            await obstore.delete_async(self._store, key)
        if found != b"probe":
            raise StoreUnavailableError(f"the blob store {self._name} failed: what was written is not what is read")

    async def identity(self) -> str:
        """Return the store's id; see `BlobStore`."""
        with self._failing():
            with contextlib.suppress(AlreadyExistsError, FileExistsError):
                # whoever is first wins
                await obstore.put_async(self._store, "identity", secrets.token_hex(16).encode(), mode="create")
            found = await (await obstore.get_async(self._store, "identity")).bytes_async()
        return bytes(found).decode("ascii")

    async def aclose(self) -> None:
        """End the threads; see `BlobStore`."""
        await asyncio.to_thread(self._threads.shutdown)

    async def _is_there(self, blob: Blob) -> bool:
        try:
            return (await obstore.head_async(self._store, _key(blob.digest)))["size"] == blob.bytes
        except _MISSING:
            return False

    @contextlib.contextmanager
    def _failing(self, digest: str | None = None) -> Iterator[None]:
        try:
            yield
        except (BaseError, FileNotFoundError) as error:
            if digest is not None and isinstance(error, _MISSING):
                raise BlobMissingError(f"there is no blob {digest}") from None
            text = str(error).partition("\n")[0]
            raise StoreUnavailableError(f"the blob store {self._name} failed: {text}") from error


def _key(digest: str) -> str:
    return f"{check_digest(digest)[:2]}/{digest}"
