"""What these tests share with the integration tests, and a model for all of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from runner.models import mock_command
from tests.integration.conftest import cache as cache
from tests.integration.conftest import index as index
from tests.integration.conftest import shared_cache as shared_cache
from tests.integration.model_process import RunningModel, running


@pytest.fixture(scope="session")
def mock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningModel]:
    """The mock model, started once."""
    with running(mock_command(), tmp_path_factory.mktemp("mock") / "stderr") as model:
        yield model
