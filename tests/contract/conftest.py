"""Fixtures of the tests of the library's public surface."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.contract.loopback import ModelServer, running_server


@pytest.fixture
def model_server() -> Iterator[ModelServer]:
    with running_server() as server:
        yield server


@pytest.fixture(autouse=True)
def no_synchronous_connections_are_kept() -> Iterator[None]:
    """Synchronous clients leave their connections to the process; tests look at what is left after each of them."""
    yield
    if "benchmax.transport.sync_pool" in sys.modules:
        sys.modules["benchmax.transport.sync_pool"].close_transports()
