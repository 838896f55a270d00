"""Servers that the tests of one session share; each test has tenants of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from runner.service.settings import LimitSettings
from tests.service.http.servers import ServerProcess, Tenant, hasty, running, strict
from tests.service.nursery import Nursery
from tests.service.s3 import ENVIRON
from tests.service.s3 import s3 as s3

PATIENT = replace(LimitSettings(), denied_per_minute=1_000_000)
"""All tests come from one address, and many of them are denied."""


@pytest.fixture(scope="session")
def plain_server(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with SQLite and a folder."""
    with running(nursery, tmp_path_factory.mktemp("server"), limits=PATIENT) as server:
        yield server


@pytest.fixture(scope="session")
def large_server(
    nursery: Nursery, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """A server with PostgreSQL and a bucket, as several machines share them."""
    postgres = request.getfixturevalue("postgres")
    bucket = request.getfixturevalue("s3").bucket()
    url = postgres.create()
    with running(
        nursery,
        tmp_path_factory.mktemp("server"),
        database_url=url,
        blobs_url=bucket.url,
        limits=PATIENT,
        environ=ENVIRON,
    ) as server:
        yield server
    postgres.drop(url)


@pytest.fixture(scope="session")
def strict_server(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with limits that a test can reach."""
    with running(nursery, tmp_path_factory.mktemp("server"), limits=strict()) as server:
        yield server


@pytest.fixture(scope="session")
def hasty_server(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server that waits for nobody for long."""
    with running(nursery, tmp_path_factory.mktemp("server"), limits=hasty()) as server:
        yield server


@pytest.fixture(scope="session", params=["plain", "large"])
def server(request: pytest.FixtureRequest) -> ServerProcess:
    """A server, once with SQLite and a folder, once with PostgreSQL and a bucket."""
    found = request.getfixturevalue(f"{request.param}_server")
    assert isinstance(found, ServerProcess)
    return found


@pytest.fixture
def tenant(server: ServerProcess) -> Iterator[Tenant]:
    """A new tenant of that server."""
    with server.tenant() as made:
        yield made


@pytest.fixture
def other(server: ServerProcess) -> Iterator[Tenant]:
    """Another new tenant of the same server."""
    with server.tenant() as made:
        yield made


@pytest.fixture
def plain_tenant(plain_server: ServerProcess) -> Iterator[Tenant]:
    """A new tenant of the server with SQLite and a folder, where one kind is enough."""
    with plain_server.tenant() as made:
        yield made


@pytest.fixture
def strict_tenant(strict_server: ServerProcess) -> Iterator[Tenant]:
    """A new tenant of the server with limits that a test can reach."""
    with strict_server.tenant() as made:
        yield made


@pytest.fixture
def hasty_tenant(hasty_server: ServerProcess) -> Iterator[Tenant]:
    """A new tenant of the server that waits for nobody for long."""
    with hasty_server.tenant() as made:
        yield made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder for a server of a test's own."""
    made = tmp_path / "server"
    made.mkdir()
    return made
