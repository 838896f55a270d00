"""A program that asks name servers, whose questions can carry anything to whoever answers for a domain."""

from __future__ import annotations

import pytest

from tests.confined import Caller
from tests.hostile.network_lab import CALLERS, tried

ATTACKS = {
    "one elsewhere": "ask((OTHER, PORT))",
    "the resolver of the machine": "ask((RESOLVER, PORT))",
}


@pytest.mark.parametrize("caller", CALLERS)
def test_name_servers_are_out_of_reach(caller: Caller) -> None:
    result = tried(caller, ATTACKS)
    out_of_reach = {"one elsewhere": "cannot ENETUNREACH", "the resolver of the machine": "cannot ECONNREFUSED"}
    for attack, error in out_of_reach.items():
        assert result[attack] == {"off": "can", "open": "can", "model-only": error, "none": error}
