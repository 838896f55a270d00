"""A program that connects to another port of a machine than the one that was named."""

from __future__ import annotations

import pytest

from tests.confined import Caller
from tests.hostile.network_lab import CALLERS, tried

ATTACKS = {
    "the port that was named": "connect((DECLARED, PORT))",
    "another one": "connect((DECLARED, PORT + 1))",
    "the port by datagram": "ask((DECLARED, PORT))",
}


@pytest.mark.parametrize("caller", CALLERS)
def test_of_a_place_that_was_named_there_is_nothing_but_that_port(caller: Caller) -> None:
    result = tried(caller, ATTACKS)
    named, other = result["the port that was named"], result["another one"]
    assert named == {"off": "can", "open": "can", "model-only": "can", "none": "cannot ENETUNREACH"}
    assert other == {"off": "can", "open": "can", "model-only": "cannot ECONNREFUSED", "none": "cannot ENETUNREACH"}
    # nothing answers there anywhere; what matters is that it is not carried on
    assert result["the port by datagram"]["model-only"] == "cannot ECONNREFUSED"
