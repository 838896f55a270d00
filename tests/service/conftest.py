"""What tests of the service share: real databases of both kinds."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.service.database.database import Database, upgrade
from tests.service.nursery import nursery as nursery
from tests.service.postgres import Server
from tests.service.postgres import postgres as postgres


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent) and item.get_closest_marker("timeout") is None:
            # the first one starts the servers
            item.add_marker(pytest.mark.timeout(300))


@pytest.fixture(scope="session")
def sqlite_pattern(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite database with the tables of the newest schema."""
    path = tmp_path_factory.mktemp("pattern") / "service.db"
    upgrade(f"sqlite:///{path}")
    return path


@pytest.fixture
def sqlite_url(sqlite_pattern: Path, tmp_path: Path) -> str:
    """The URL of a new SQLite database with all tables."""
    path = tmp_path / "service.db"
    shutil.copy(sqlite_pattern, path)
    return f"sqlite:///{path}"


@pytest.fixture(scope="session", params=["sqlite", "postgresql"])
def server(request: pytest.FixtureRequest) -> Server | None:
    """The server that databases are made on; `None` for SQLite. Started before any test looks at its own leftovers."""
    if request.param == "sqlite":
        return None
    started: Server = request.getfixturevalue("postgres")
    return started


@pytest.fixture
def database_url(server: Server | None, sqlite_pattern: Path, tmp_path: Path) -> Iterator[str]:
    """The URL of a new database with all tables, once of each kind."""
    if server is None:
        path = tmp_path / "service.db"
        shutil.copy(sqlite_pattern, path)
        yield f"sqlite:///{path}"
        return
    url = server.create()
    yield url
    server.clear(url)


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """An open database with all tables and nothing in them, once of each kind."""
    opened = Database.open(database_url)
    yield opened
    opened.close()
