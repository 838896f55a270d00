"""Kills programs of a site at moments and in an order that a seed gives."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable

from tests.service.chaos.aftermath import told_processes
from tests.service.chaos.deployment import Site


async def kill(site: Site, seed: int, *, count: int, at_most_s: float, over: Callable[[], bool]) -> list[str]:
    """Kill programs.

    Args:
        site: Whose.
        seed: Of whatever is chosen.
        count: How many.
        at_most_s: The longest pause between two; they are evenly spread up to it.
        over: Whether there is nothing left to disturb.

    Returns:
        What was killed when, in seconds from the beginning.

    Raises:
        AssertionError: in between, a process shows a secret.
    """
    chance, began = random.Random(seed), time.monotonic()
    killed: list[str] = []
    turns: list[str] = []
    for _ in range(count):
        await asyncio.sleep(chance.uniform(0.1, at_most_s))
        if over():
            break
        victims = site.victims()
        if not turns:
            # each as often as the others
            turns = chance.sample(sorted(victims), len(victims))
        name = turns.pop()
        exposed = await asyncio.to_thread(told_processes, site)
        assert not exposed, exposed
        await asyncio.to_thread(victims[name], chance)
        killed.append(f"{name} at {time.monotonic() - began:.2f} s")
    return killed
