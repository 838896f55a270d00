"""A program that changes its network: gives itself addresses or a way out, or makes up packets."""

from __future__ import annotations

import pytest

from tests.confined import Caller
from tests.hostile.network_lab import CALLERS, Column, tried

NEW_LINK, NEW_ADDRESS, NEW_ROUTE = 16, 20, 24

ATTACKS = {
    "add an address": f"tell_kernel({NEW_ADDRESS}, struct.pack('=BBBBiHHI', 2, 32, 2, 254, 1, 8, 2, 0x0708090A))",
    "change the device": f"tell_kernel({NEW_LINK}, struct.pack('=BxHiII', 0, 0, 1, 1, 1))",
    "add a route": f"tell_kernel({NEW_ROUTE}, struct.pack('=BBBBBBBBIHHi', 2, 0, 0, 0, 254, 3, 0, 1, 0, 8, 4, 1))",
    "forge packets": "socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP).close()",
}


@pytest.mark.parametrize("caller", CALLERS)
def test_the_network_stays_as_it_was_made(caller: Caller) -> None:
    # of the caller's own network it can change what the caller could
    off = "can" if caller == "root" else "cannot EPERM"
    confined: tuple[Column, ...] = ("open", "model-only", "none")
    for attack, found in tried(caller, ATTACKS).items():
        assert found == {"off": off, **dict.fromkeys(confined, "cannot EPERM")}, attack
