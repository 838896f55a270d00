"""What tests of the platform's API share: one running service, and keys for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from runner.errors import SandboxUnavailableError
from runner.service.executor import confinement
from runner.service.settings import Settings
from tests.conftest import require
from tests.integration.conftest import shared_cache as shared_cache
from tests.service.platform.platform_server import Served, serving


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory, shared_cache: Path) -> Iterator[Served]:
    """A service with the mock model and one executor."""
    try:
        confinement(Settings())
    except SandboxUnavailableError as error:
        require(None, str(error))
    with serving(tmp_path_factory.mktemp("service"), shared_cache) as service:
        yield service


@pytest.fixture
def secret(served: Served) -> str:
    """A key that may submit, read and ask models."""
    return served.key()


@pytest.fixture
def client(served: Served, secret: str) -> Iterator[httpx.Client]:
    """A client with that key."""
    with served.client(secret) as client:
        yield client
