"""A program that connects to what listens on the caller's loopback: databases, notebooks, model servers."""

from __future__ import annotations

import pytest

from tests.confined import Caller
from tests.hostile.network_lab import CALLERS, tried

ATTACKS = {
    "by IPv4": "connect(('127.0.0.1', PORT))",
    "by IPv6": "connect(('::1', PORT), socket.AF_INET6)",
    "as the unspecified address": "connect(('0.0.0.0', PORT))",
    "by name": "connect(('localhost', PORT))",
}


@pytest.mark.parametrize("caller", CALLERS)
def test_the_callers_loopback_is_out_of_reach(caller: Caller) -> None:
    # it has a loopback of its own, on which nothing listens
    refused = "cannot ECONNREFUSED"
    for found in tried(caller, ATTACKS).values():
        assert found == {"off": "can", "open": "can", "model-only": refused, "none": refused}
