"""What tests of executors share: a service without an HTTP server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.errors import SandboxUnavailableError
from runner.service.database.database import Database
from runner.service.executor import confinement
from runner.service.settings import (
    BlobSettings,
    DatabaseSettings,
    LimitSettings,
    ServerSettings,
    Settings,
)
from tests.conftest import require
from tests.integration.conftest import shared_cache as shared_cache
from tests.service.executor.held_model import HeldModel, held_model
from tests.service.executor.house import House
from tests.service.nursery import Nursery


@pytest.fixture(scope="session")
def confined() -> None:
    """Skip where strangers' bundles cannot be confined."""
    try:
        confinement(Settings())
    except SandboxUnavailableError as error:
        require(None, str(error))


@pytest.fixture
def open_house(
    confined: None, nursery: Nursery, sqlite_url: str, shared_cache: Path, tmp_path: Path
) -> Iterator[Callable[..., House]]:
    """Open a house whose settings differ from the usual ones."""
    opened: list[Database] = []

    def open_house(**parts: Any) -> House:
        settings = Settings(
            server=ServerSettings(data=tmp_path / "data"),
            database=DatabaseSettings(url=sqlite_url),
            blobs=BlobSettings(url=f"file://{tmp_path / 'blobs'}"),
            limits=LimitSettings(drain_s=60.0),
        )
        database = Database.open(sqlite_url)
        opened.append(database)
        return House(tmp_path, replace(settings, **parts), database, shared_cache, nursery)

    yield open_house
    for database in opened:
        database.close()


@pytest.fixture
def house(open_house: Callable[..., House]) -> House:
    """A house with the mock model."""
    return open_house()


@pytest.fixture
def held() -> Iterator[HeldModel]:
    """A model that answers when it is let."""
    with held_model() as model:
        yield model
