"""What integration tests share: caches and a package index of their own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.provision import Cache
from tests.integration.local_index import LocalIndex


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache folder for the whole session, kept between sessions where `BENCHMAX_TEST_CACHE` names it."""
    named = os.environ.get("BENCHMAX_TEST_CACHE")
    base = tmp_path_factory.getbasetemp()
    # processes of one session that share the tests among them share this, too
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder = Path(named) if named else shared / "shared-cache"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    """An empty cache."""
    return Cache(tmp_path / "cache")


@pytest.fixture
def index(tmp_path: Path) -> Iterator[LocalIndex]:
    """An empty package index on loopback."""
    with LocalIndex(tmp_path / "index") as served:
        yield served
