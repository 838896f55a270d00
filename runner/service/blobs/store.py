"""What a blob store does, and what can go wrong with it.

A blob's name is the SHA-256 of its bytes, so it is never changed, and the same content is kept once. A blob is there
whole or not at all, whenever a process or the machine ends.

Who stores something and who deletes what nothing refers to would be in each other's way where both have the same
content at the same time. So a digest is written down in the database *before* its content can be seen (`pin`), and
content is removed inside of the transaction that deletes its row (`remove_now`): the row's lock orders the two.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")

CHUNK_BYTES: Final = 256 * 1024
"""Read and written at once: more of it saves no time, and hundreds of transfers hold one each."""

STALE_S: Final = 86_400.0
"""After which a half-written file is one that nobody writes any more; no transfer takes a day."""


class BlobError(Exception):
    """Raised when a blob store cannot do what it was asked; the subclasses say when."""


class TooLargeError(BlobError):
    """Raised when there are more bytes than there may be."""


class DigestMismatchError(BlobError):
    """Raised when the bytes are not those that were announced, or not those that were stored."""


class BlobMissingError(BlobError):
    """Raised when there is no such blob."""


class StoreUnavailableError(BlobError):
    """Raised when the store does not answer, is full, or refuses."""


@dataclass(frozen=True, slots=True)
class Blob:
    """Something stored.

    Args:
        digest: SHA-256 of its bytes, in lower-case hexadecimal.
        bytes: How many there are.
    """

    digest: str
    bytes: int


Pin = Callable[[Blob], Awaitable[None]]
"""Writes a digest down before its content can be seen; what it raises leaves nothing stored."""


class BlobStore(Protocol):
    """A place for blobs. Used on one event loop, except for `remove_now`."""

    async def put(
        self,
        chunks: AsyncIterator[bytes],
        *,
        max_bytes: int,
        expected_sha256: str | None = None,
        pin: Pin | None = None,
    ) -> Blob:
        """Store what comes.

        Args:
            chunks: The bytes. What it raises goes through, and leaves nothing stored.
            max_bytes: How many there may be.
            expected_sha256: What they have to be.
            pin: Awaited when everything is there and none of it can be seen yet.

        Raises:
            TooLargeError: there are more.
            DigestMismatchError: they are something else.
            StoreUnavailableError: there is no room, or the store does not answer.
        """
        ...

    def open(self, digest: str) -> AsyncIterator[bytes]:
        """Read a blob, an asynchronous generator.

        Raises:
            BlobMissingError: at the first step, where there is none.
            StoreUnavailableError: the store does not answer.
        """
        ...

    async def size(self, digest: str) -> int:
        """Return how many bytes a blob has.

        Raises:
            BlobMissingError: there is none.
            StoreUnavailableError: the store does not answer.
        """
        ...

    async def fetch(self, digest: str, path: Path) -> None:
        """Write a blob to a new file, and check that it is what its name says.

        Raises:
            BlobMissingError: there is none.
            DigestMismatchError: the store has something else under that name; the file is gone again.
            FileExistsError: there is a file already.
            StoreUnavailableError: the store does not answer.
        """
        ...

    async def has(self, digest: str) -> bool:
        """Return whether there is such a blob.

        Raises:
            StoreUnavailableError: the store does not answer.
        """
        ...

    async def delete(self, digest: str) -> None:
        """Delete a blob; one that is not there is deleted already.

        Raises:
            StoreUnavailableError: the store does not answer.
        """
        ...

    def remove_now(self, digests: Iterable[str]) -> None:
        """Delete blobs, blocking, from any thread: inside of the transaction that deletes their rows.

        Raises:
            StoreUnavailableError: the store does not answer.
        """
        ...

    async def check(self) -> None:
        """Find out whether the store works, by writing and reading a little.

        Raises:
            StoreUnavailableError: it does not.
        """
        ...

    async def identity(self) -> str:
        """Return the id that the store was given when it was first used, by whoever that was.

        Two processes that find the same one share a store.

        Raises:
            StoreUnavailableError: the store does not answer.
        """
        ...

    async def aclose(self) -> None:
        """Let go of what the store holds. Safe to call twice."""
        ...


def check_digest(digest: str) -> str:
    """Return a digest.

    Raises:
        ValueError: it is none, and must not become part of a path.
    """
    if not _DIGEST.fullmatch(digest):
        raise ValueError(f"a digest has 64 hexadecimal digits, got {digest[:80]!r}")
    return digest


class Intake:
    """Counts and digests what is being stored.

    Args:
        max_bytes: How many bytes there may be.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._hash = hashlib.sha256()
        self._bytes = 0

    def announce(self, count: int) -> None:
        """Take account of bytes that have come.

        Raises:
            TooLargeError: they are too many.
        """
        self._bytes += count
        if self._bytes > self._max_bytes:
            raise TooLargeError(f"there are more than {self._max_bytes} bytes")

    def digest(self, chunk: bytes | bytearray) -> None:
        """Digest bytes; may be done in a thread, one after the other."""
        self._hash.update(chunk)

    def finish(self, expected_sha256: str | None) -> Blob:
        """Return what has come.

        Raises:
            DigestMismatchError: it is something else.
        """
        found = self._hash.hexdigest()
        if expected_sha256 is not None and found != expected_sha256:
            raise DigestMismatchError(f"the digest of the {self._bytes} bytes is {found}, not {expected_sha256}")
        return Blob(found, self._bytes)
