"""A program that connects to a machine that nobody has named."""

from __future__ import annotations

import pytest

from tests.confined import Caller
from tests.hostile.network_lab import CALLERS, tried

ATTACKS = {
    "by IPv4": "connect((OTHER, PORT))",
    "by IPv6": "connect((OTHER_V6, PORT), socket.AF_INET6)",
    "by IPv4 in the form of IPv6": "connect((f'::ffff:{OTHER}', PORT), socket.AF_INET6)",
}


@pytest.mark.parametrize("caller", CALLERS)
def test_other_hosts_are_out_of_reach(caller: Caller) -> None:
    for found in tried(caller, ATTACKS).values():
        assert found == {"off": "can", "open": "can", "model-only": "cannot ENETUNREACH", "none": "cannot ENETUNREACH"}
