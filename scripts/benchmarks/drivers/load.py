"""The load: groups of eight rollouts, so many of them in flight at a time."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager

GROUP = 8
BASE_URL = "http://127.0.0.1:9/v1"
"""The discard port: nothing here is ever called."""

RunGroup = Callable[[list[str]], Awaitable[object]]
"""Runs one group of rollouts with these ids."""


def drive(make: Callable[[], AbstractAsyncContextManager[RunGroup]]) -> None:
    """Be one of these programs: make what runs groups, run them, print the figures."""
    pairs = [argument.split(":") for argument in sys.argv[1:]]
    print(json.dumps(asyncio.run(_drive(make, [(int(depth), int(groups)) for depth, groups in pairs]))))


async def _drive(
    make: Callable[[], AbstractAsyncContextManager[RunGroup]], pairs: Sequence[tuple[int, int]]
) -> Mapping[str, float]:
    began = time.perf_counter()
    async with make() as run_group:
        await run_group([f"warm-{k}" for k in range(GROUP)])
        figures = {"ready": time.perf_counter() - began}
        # interpreters get faster with what they have seen
        await rate(run_group, GROUP, max(1, pairs[0][1] // 4))
        for depth, groups in pairs:
            figures[str(depth)] = await rate(run_group, depth, groups)
    return figures


async def rate(run_group: RunGroup, depth: int, groups: int) -> float:
    """Rollouts per second with `depth` groups in flight."""
    numbers = iter(range(groups))

    async def lane() -> None:
        for number in numbers:
            await run_group([f"{number}-{k}" for k in range(GROUP)])

    began = time.perf_counter()
    await asyncio.gather(*(lane() for _ in range(depth)))
    return groups * GROUP / (time.perf_counter() - began)
