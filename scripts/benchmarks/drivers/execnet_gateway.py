"""One execnet gateway: a channel to a loop that runs what it receives."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import execnet

from scripts.benchmarks.drivers.load import RunGroup, drive

REMOTE = """
import os, sys
sys.path[:0] = channel.receive()
os.environ.update(channel.receive())
from scripts.benchmarks.drivers import pooled
for number, ids in channel:
    channel.send((number, pooled.run(ids)))
"""


@asynccontextmanager
async def gateway() -> AsyncIterator[RunGroup]:
    """The gateway."""
    loop = asyncio.get_running_loop()
    remote = execnet.makegateway()
    channel = remote.remote_exec(REMOTE)
    channel.send(os.environ["PYTHONPATH"].split(os.pathsep))
    channel.send({name: value for name, value in os.environ.items() if name.startswith("BENCHMARK_")})
    waiting: dict[int, asyncio.Future[Any]] = {}
    numbers = itertools.count()

    def arrived(item: tuple[int, Any]) -> None:
        loop.call_soon_threadsafe(lambda: waiting.pop(item[0]).set_result(item[1]))

    channel.setcallback(arrived)

    async def run_group(ids: list[str]) -> object:
        number = next(numbers)
        waiting[number] = future = loop.create_future()
        channel.send((number, ids))
        return await future

    try:
        yield run_group
    finally:
        remote.exit()


if __name__ == "__main__":
    drive(gateway)
