"""The same no-op groups through a `ProcessPoolExecutor` of one worker: what people would write by hand."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmax.auth import StaticBearerAuth
from benchmax.envs import RolloutRequest
from scripts.benchmarks import subject

_state: dict[str, Any] = {}


def _start() -> None:
    """Make the environment once per worker."""
    loop = asyncio.new_event_loop()
    env = subject.NoOp()
    dataset = loop.run_until_complete(env.create_dataset("eval", Path()))
    _state.update(loop=loop, env=env, example=dataset[0])


def _group(ids: list[str]) -> dict[str, tuple[dict[str, float], str, str | None]]:
    """Run one group in the worker; outcomes come back as plain values."""
    auth = StaticBearerAuth("unused")
    requests = [RolloutRequest(i, _state["example"], "m", "http://127.0.0.1:9/v1", auth) for i in ids]
    outcomes = _state["loop"].run_until_complete(_state["env"].run_group(requests))
    return {i: (dict(o.rewards), o.termination_reason, o.error) for i, o in outcomes.items()}


@contextmanager
def pool(method: str) -> Iterator[ProcessPoolExecutor]:
    """A pool of one process that is ready."""
    with ProcessPoolExecutor(1, mp_context=get_context(method), initializer=_start) as executor:
        executor.submit(_group, ["warm"]).result()
        yield executor


async def rate(executor: ProcessPoolExecutor, depth: int, groups: int, size: int) -> float:
    """Rollouts per second with `depth` groups in flight."""
    loop = asyncio.get_running_loop()
    work = iter(range(groups))

    async def lane() -> None:
        for number in work:
            await loop.run_in_executor(executor, _group, [f"{number}-{k}" for k in range(size)])

    began = time.perf_counter()
    await asyncio.gather(*(lane() for _ in range(depth)))
    return groups * size / (time.perf_counter() - began)
