"""A program that asks the service from which machines in a cloud get their credentials."""

from __future__ import annotations

import pytest

from tests.confined import Caller
from tests.hostile.network_lab import CALLERS, tried

ATTACKS = {
    "the metadata service": "connect((METADATA, PORT))",
}


@pytest.mark.parametrize("caller", CALLERS)
def test_the_metadata_service_is_out_of_reach(caller: Caller) -> None:
    (found,) = tried(caller, ATTACKS).values()
    assert found == {"off": "can", "open": "can", "model-only": "cannot ENETUNREACH", "none": "cannot ENETUNREACH"}
