"""A program that connects to an abstract Unix socket, which has no file that could be hidden."""

from __future__ import annotations

import pytest

from runner.sandbox.landlock import SCOPE_VERSION
from runner.sandbox.machine import look
from tests.confined import Caller
from tests.hostile.network_lab import CALLERS, tried

ATTACKS = {
    "an abstract socket": "connect(ABSTRACT, socket.AF_UNIX)",
}


@pytest.mark.parametrize("caller", CALLERS)
def test_abstract_sockets_are_out_of_reach(caller: Caller) -> None:
    (found,) = tried(caller, ATTACKS).values()
    # with a network in common it takes Landlock to keep them away; without, they are not there
    open_network = "cannot EPERM" if look().landlock >= SCOPE_VERSION else "can"
    refused = "cannot ECONNREFUSED"
    assert found == {"off": "can", "open": open_network, "model-only": refused, "none": refused}
