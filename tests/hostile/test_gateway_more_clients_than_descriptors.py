"""A shell's usual limit of descriptors is no limit for how many rollouts may ask at once, where more may be had."""

from __future__ import annotations

import asyncio
import resource
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.unit.gateway_lab import PATIENCE_S, Asked, Wire, answer_plainly, lab

CLIENTS = 100
FEW = 256
"""What the process may have open at first: not even the clients of this test and what answers them."""


async def ask_at_once() -> Counter[int]:
    async with lab() as made:

        async def when_all_have_asked(asked: Asked, wire: Wire) -> None:
            await made.endpoint.until(lambda: len(made.endpoint.asked) == CLIENTS)
            await answer_plainly(asked, wire)

        made.endpoint.doing = when_all_have_asked
        session = made.open()
        answers = await asyncio.gather(*(made.post(session) for _ in range(CLIENTS)))
        return Counter(answer.status for answer in answers)


def test_all_of_them_are_answered() -> None:
    """In a process of its own, whose limit may be changed."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 16 * CLIENTS:
        pytest.skip(f"no more than {hard} descriptors can be had")
    code = f"import {__name__.rpartition('.')[2]} as test; test.main()"
    here = Path(__file__)
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=here.parents[2],
        env={"PYTHONPATH": f"{here.parent}:{here.parents[2]}"},
        capture_output=True,
        text=True,
        timeout=3 * PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == f"Counter({{200: {CLIENTS}}})\n"


def main() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (FEW, hard))
    print(asyncio.run(ask_at_once()))
