"""Blob stores: whole or not at all, under the digest of what they are, and the same on disk as in a bucket."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from runner.errors import DatabaseError, UsageError
from runner.service.blobs.belonging import check_belongs
from runner.service.blobs.disk import DiskBlobs
from runner.service.blobs.opening import open_blobs
from runner.service.blobs.spool import sweep
from runner.service.blobs.store import (
    Blob,
    BlobMissingError,
    BlobStore,
    DigestMismatchError,
    StoreUnavailableError,
    TooLargeError,
)
from runner.service.database.database import Database

# the library for buckets keeps its connections for the next request
pytestmark = pytest.mark.keeps_descriptors

PIECES = [b"some ", b"", b"content", b"!" * 600_000]
DATA = b"".join(PIECES)
DIGEST = hashlib.sha256(DATA).hexdigest()
ABSENT = "0" * 64


async def pieces(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def everything(blobs: BlobStore, digest: str) -> bytes:
    return b"".join([piece async for piece in blobs.open(digest)])


def spooled(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("incoming-*")]


async def test_what_is_put_is_there_under_its_digest(blobs: BlobStore, tmp_path: Path) -> None:
    assert not await blobs.has(DIGEST)
    assert await blobs.put(pieces(*PIECES), max_bytes=len(DATA), expected_sha256=DIGEST) == Blob(DIGEST, len(DATA))
    assert await blobs.has(DIGEST)
    assert await blobs.size(DIGEST) == len(DATA)
    assert await everything(blobs, DIGEST) == DATA
    await blobs.fetch(DIGEST, tmp_path / "fetched")
    assert (tmp_path / "fetched").read_bytes() == DATA
    assert spooled(tmp_path) == []


async def test_the_same_content_many_times_at_once_is_one_blob(blobs: BlobStore) -> None:
    put = await asyncio.gather(*(blobs.put(pieces(*PIECES), max_bytes=10**7) for _ in range(10)))
    assert set(put) == {Blob(DIGEST, len(DATA))}
    assert await everything(blobs, DIGEST) == DATA


async def test_nothing_is_content_too(blobs: BlobStore) -> None:
    blob = await blobs.put(pieces(), max_bytes=0)
    assert blob.bytes == 0
    assert await everything(blobs, blob.digest) == b""


async def test_more_than_there_may_be_leaves_nothing(blobs: BlobStore, tmp_path: Path) -> None:
    with pytest.raises(TooLargeError):
        await blobs.put(pieces(*PIECES), max_bytes=len(DATA) - 1)
    assert not await blobs.has(DIGEST)
    assert spooled(tmp_path) == []


async def test_something_else_than_announced_leaves_nothing(blobs: BlobStore, tmp_path: Path) -> None:
    with pytest.raises(DigestMismatchError):
        await blobs.put(pieces(*PIECES), max_bytes=10**7, expected_sha256=ABSENT)
    assert not await blobs.has(DIGEST)
    assert spooled(tmp_path) == []


async def test_what_breaks_off_leaves_nothing(blobs: BlobStore, tmp_path: Path) -> None:
    async def breaking() -> AsyncIterator[bytes]:
        yield DATA
        raise ConnectionAbortedError

    with pytest.raises(ConnectionAbortedError):
        await blobs.put(breaking(), max_bytes=10**7)
    assert spooled(tmp_path) == []


async def test_a_transfer_that_is_cancelled_leaves_nothing(blobs: BlobStore, tmp_path: Path) -> None:
    waiting = asyncio.Event()

    async def stuck() -> AsyncIterator[bytes]:
        yield DATA
        waiting.set()
        await asyncio.Event().wait()

    putting = asyncio.create_task(blobs.put(stuck(), max_bytes=10**7))
    await waiting.wait()
    assert spooled(tmp_path)
    putting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await putting
    assert spooled(tmp_path) == []
    assert not await blobs.has(DIGEST)


async def test_a_digest_is_written_down_before_its_content_is_seen(blobs: BlobStore) -> None:
    seen: list[tuple[Blob, bool]] = []

    async def pin(blob: Blob) -> None:
        seen.append((blob, await blobs.has(blob.digest)))

    await blobs.put(pieces(*PIECES), max_bytes=10**7, pin=pin)
    assert seen == [(Blob(DIGEST, len(DATA)), False)]


async def test_what_cannot_be_written_down_is_not_stored(blobs: BlobStore, tmp_path: Path) -> None:
    async def pin(blob: Blob) -> None:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        await blobs.put(pieces(*PIECES), max_bytes=10**7, pin=pin)
    assert not await blobs.has(DIGEST)
    assert spooled(tmp_path) == []


async def test_what_is_removed_while_it_is_written_down_is_put_again(blobs: BlobStore) -> None:
    await blobs.put(pieces(*PIECES), max_bytes=10**7)

    async def pin(blob: Blob) -> None:
        await blobs.delete(blob.digest)

    await blobs.put(pieces(*PIECES), max_bytes=10**7, pin=pin)
    assert await everything(blobs, DIGEST) == DATA


async def test_what_is_not_there_is_told(blobs: BlobStore, tmp_path: Path) -> None:
    with pytest.raises(BlobMissingError):
        await blobs.size(ABSENT)
    with pytest.raises(BlobMissingError):
        await everything(blobs, ABSENT)
    with pytest.raises(BlobMissingError):
        await blobs.fetch(ABSENT, tmp_path / "fetched")
    assert not (tmp_path / "fetched").exists()


async def test_deleting_is_for_good_and_twice_is_harmless(blobs: BlobStore) -> None:
    await blobs.put(pieces(*PIECES), max_bytes=10**7)
    await blobs.delete(DIGEST)
    assert not await blobs.has(DIGEST)
    await blobs.delete(DIGEST)
    one, two = [await blobs.put(pieces(data), max_bytes=10**7) for data in (b"1", b"2")]
    await asyncio.to_thread(blobs.remove_now, [one.digest, two.digest, ABSENT])
    assert not await blobs.has(one.digest)
    assert not await blobs.has(two.digest)


async def test_a_file_that_is_there_is_not_written_over(blobs: BlobStore, tmp_path: Path) -> None:
    await blobs.put(pieces(*PIECES), max_bytes=10**7)
    (tmp_path / "fetched").write_text("mine")
    with pytest.raises(FileExistsError):
        await blobs.fetch(DIGEST, tmp_path / "fetched")
    assert (tmp_path / "fetched").read_text() == "mine"


@pytest.mark.parametrize("name", ["", "../" + "0" * 61, "A" * 64, "0" * 63, "0" * 65])
async def test_what_is_no_digest_never_becomes_a_path(blobs: BlobStore, name: str) -> None:
    with pytest.raises(ValueError, match="64 hexadecimal digits"):
        await blobs.delete(name)


async def test_a_store_has_one_identity_whoever_opens_it(blobs: BlobStore, url: str, tmp_path: Path) -> None:
    again = open_blobs(url, spool=tmp_path / "spool")
    found = await asyncio.gather(*(store.identity() for store in (blobs, again) * 5))
    assert len(set(found)) == 1
    assert len(found[0]) == 32
    await again.aclose()


async def test_a_store_that_works_says_so(blobs: BlobStore) -> None:
    await blobs.check()


@pytest.mark.parametrize("url", ["disk"], indirect=True)
class TestOnDisk:
    """What only a folder can have."""

    async def test_content_that_was_changed_is_not_given_out(self, blobs: BlobStore, tmp_path: Path) -> None:
        await blobs.put(pieces(*PIECES), max_bytes=10**7)
        path = tmp_path / "blobs" / DIGEST[:2] / DIGEST
        path.write_bytes(b"changed")
        with pytest.raises(DigestMismatchError):
            await blobs.fetch(DIGEST, tmp_path / "fetched")
        assert not (tmp_path / "fetched").exists()
        # and putting it again repairs it
        await blobs.put(pieces(*PIECES), max_bytes=10**7)
        assert await everything(blobs, DIGEST) == DATA

    async def test_a_folder_that_is_gone_is_told(self, blobs: BlobStore, tmp_path: Path) -> None:
        (tmp_path / "blobs" / "incoming").rmdir()
        with pytest.raises(StoreUnavailableError, match="No such file"):
            await blobs.check()
        with pytest.raises(StoreUnavailableError):
            await blobs.put(pieces(b"x"), max_bytes=10)

    def test_a_folder_that_cannot_be_made_is_told(self, url: str, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(StoreUnavailableError):
            DiskBlobs(tmp_path / "file" / "below")

    def test_what_writers_long_gone_have_left_is_swept(self, url: str, tmp_path: Path) -> None:
        for name, age_s in (("incoming-old", 100_000), ("incoming-new", 10)):
            (tmp_path / name).write_text("")
            at = (tmp_path / name).stat().st_mtime - age_s
            os.utime(tmp_path / name, (at, at))
        sweep(tmp_path)
        assert spooled(tmp_path) == ["incoming-new"]


@pytest.mark.parametrize("url", ["s3"], indirect=True)
class TestInABucket:
    """What only a bucket can have."""

    async def test_a_large_file_is_sent_in_parts(self, blobs: BlobStore) -> None:
        part = os.urandom(1 << 20)
        blob = await blobs.put(pieces(*[part] * 12), max_bytes=10**8)
        assert hashlib.sha256(part * 12).hexdigest() == blob.digest
        assert await blobs.size(blob.digest) == 12 << 20

    async def test_a_bucket_that_is_not_there_is_told(self, url: str, tmp_path: Path) -> None:
        missing = open_blobs(url.replace("s3://", "s3://not-"), spool=tmp_path)
        with pytest.raises(StoreUnavailableError, match="s3://not-"):
            await missing.check()
        with pytest.raises(StoreUnavailableError):
            await missing.put(pieces(b"x"), max_bytes=10)
        await missing.aclose()


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "ftp://host/x",
        "file://elsewhere/x",
        "file:///x?y",
        "s3://",
        "s3://user:password@bucket",
        "s3://bucket?regoin=x",
        "s3://bucket?endpoint=host:9000",
    ],
)
def test_a_url_that_cannot_be_meant_is_refused(wrong: str) -> None:
    with pytest.raises(UsageError) as raised:
        open_blobs(wrong)
    assert "password" not in str(raised.value)


async def test_a_store_belongs_to_one_database(tmp_path: Path, sqlite_url: str) -> None:
    own, other = DiskBlobs(tmp_path / "own"), DiskBlobs(tmp_path / "other")
    database = Database.open(sqlite_url)
    try:
        await check_belongs(own, database)
        await check_belongs(own, database)
        with pytest.raises(DatabaseError, match="not the one of this database"):
            await check_belongs(other, database)
        # moved as a whole, it is the same
        (tmp_path / "other" / "identity").write_text((tmp_path / "own" / "identity").read_text())
        await check_belongs(other, database)
    finally:
        database.close()
        await own.aclose()
        await other.aclose()
