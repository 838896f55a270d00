"""Sandboxes that tests share which leave nothing behind in them, one for each kind of caller."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

import pytest

from tests.confined import Caller
from tests.trials.talking import Talk, opened


@pytest.fixture(scope="session", params=get_args(Caller))
def talk(request: pytest.FixtureRequest) -> Iterator[Talk]:
    """A sandbox of a caller that is root, and one of an ordinary user's."""
    with opened(request.param) as talk:
        yield talk


@pytest.fixture(scope="session")
def of_root() -> Iterator[Talk]:
    """A sandbox of a caller that is root, with users."""
    with opened("root") as talk:
        yield talk
