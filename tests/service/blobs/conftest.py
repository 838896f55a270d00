"""Blob stores of both kinds, new for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from runner.service.blobs.opening import open_blobs
from runner.service.blobs.store import BlobStore
from tests.service.s3 import ENVIRON, S3
from tests.service.s3 import s3 as s3


@pytest.fixture(params=["disk", "s3"])
def url(request: pytest.FixtureRequest, s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a new store, once of each kind."""
    if request.param == "disk":
        return f"file://{tmp_path / 'blobs'}"
    for name, value in ENVIRON.items():
        monkeypatch.setenv(name, value)
    return s3.bucket().url


@pytest.fixture
async def blobs(url: str, tmp_path: Path) -> AsyncIterator[BlobStore]:
    """An open store."""
    opened = open_blobs(url, spool=tmp_path / "spool")
    yield opened
    await opened.aclose()
