"""What campaigns share: a model, and a machine that can confine what is uploaded."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.errors import SandboxUnavailableError
from runner.provision import Cache, provision
from runner.service.executor import confinement
from runner.service.settings import Settings
from tests.conftest import require
from tests.integration.conftest import shared_cache as shared_cache
from tests.service.chaos.campaign import DESERVED
from tests.service.chaos.unit import Unit
from tests.service.cli.running import free_port
from tests.service.executor.house import bundle_of


@pytest.fixture(scope="session")
def confined() -> None:
    """Skip where strangers' bundles cannot be confined."""
    try:
        confinement(Settings())
    except SandboxUnavailableError as error:
        require(None, str(error))


@pytest.fixture
async def warm_cache(confined: None, shared_cache: Path) -> Path:
    """A cache in which everything is that jobs of a campaign need, for a machine without a package index."""
    for name in DESERVED:
        options = confinement(Settings()).provisioning
        await provision(bundle_of(name).metadata, cache=Cache(shared_cache), options=options)
    return shared_cache


@pytest.fixture
def model_url(tmp_path: Path) -> Iterator[str]:
    """The base URL of the mock model, which a key is sent to as to any other."""
    port = free_port()
    folder = tmp_path / "model"
    folder.mkdir()
    command = [sys.executable, "-m", "runner.models.mock_server", "--announce-fd", "1", "--port", str(port)]
    unit = Unit("model", command, folder=folder, environ={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])})
    try:
        unit.said("base_url")
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        unit.end()
