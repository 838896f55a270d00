"""What rollouts in flight take in both processes, that nothing stays of them, and that a slow side slows the other."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmax.auth import StaticBearerAuth
from benchmax.envs import Example, RolloutRequest
from runner.channel import WINDOW_BYTES
from runner.provision import Cache
from tests.integration.environments import gathering
from tests.integration.isolation import BASE_URL, bundled, unconfined, until

pytestmark = pytest.mark.integration

GROUP = 8
KIB = 1024
MIB = 1024 * KIB
AUTH = StaticBearerAuth("unused-token")


class Setting:
    def __init__(self, env: Any, examples: dict[str, Example[Any]], folder: Path) -> None:
        self.env = env
        self.examples = examples
        self.folder = folder
        (self.child,) = env._pool.children

    async def say(self, what: int) -> list[str]:
        return [example.id for example in await self.env.create_dataset("eval", self.folder, max_examples=what)]

    def groups(self, act: str, count: int, size: int = GROUP) -> list[list[RolloutRequest[Any]]]:
        example = self.examples[act]
        return [
            [RolloutRequest(f"{number}-{k}", example, "m", BASE_URL, AUTH) for k in range(size)]
            for number in range(count)
        ]

    async def run(self, count: int, lanes: int = 50) -> None:
        """Run groups of rollouts that end at once, so many at a time."""
        numbers = iter(range(count))

        async def lane() -> None:
            for _ in numbers:
                (requests,) = self.groups("pass", 1)
                outcomes = await self.env.run_group(requests)
                assert len(outcomes) == GROUP

        await asyncio.gather(*(lane() for _ in range(lanes)))

    def memory(self) -> tuple[int, int]:
        """Resident bytes of this process and of the worker."""
        gc.collect()
        return resident(os.getpid()), resident(self.child.pid)


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@asynccontextmanager
async def running(cache: Path, folder: Path, count: int = 0) -> AsyncIterator[Setting]:
    bundle = bundled(gathering, "Gathering", count=count)
    async with unconfined(bundle, cache=Cache(cache)) as env:
        examples = {example.id: example for example in await env.create_dataset("eval", folder)}
        yield Setting(env, examples, folder)


@pytest.mark.parametrize("size", [1, GROUP])
async def test_rollouts_in_flight_take_little_in_both_processes(shared_cache: Path, tmp_path: Path, size: int) -> None:
    count = 10_000
    async with running(shared_cache, tmp_path, count) as setting:
        groups = setting.groups("wait", count // size, size)
        here, there = setting.memory()
        tasks = [asyncio.ensure_future(setting.env.run_group(requests)) for requests in groups]
        await setting.say(gathering.ALL_HERE)
        here_now, there_now = setting.memory()
        assert (here_now - here) / count <= 4 * KIB
        assert (there_now - there) / count <= 12 * KIB
        await setting.say(gathering.RELEASE)
        assert sum(len(outcomes) for outcomes in await asyncio.gather(*tasks)) == count


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_memory_is_flat_over_many_rollouts(shared_cache: Path, tmp_path: Path) -> None:
    async with running(shared_cache, tmp_path) as setting:
        await setting.run(2_500)
        here, there = setting.memory()
        await setting.run(22_500)
        here_now, there_now = setting.memory()
        # of 180,000 rollouts not even a pointer each may stay
        assert here_now - here <= 1 * MIB
        assert there_now - there <= 1 * MIB


async def test_answered_groups_leave_nothing_for_the_workers_cyclic_collector(
    shared_cache: Path, tmp_path: Path
) -> None:
    async with running(shared_cache, tmp_path) as setting:
        await setting.run(10)
        await setting.say(gathering.GARBAGE)
        await setting.run(100)
        assert await setting.say(gathering.GARBAGE) == ["0 objects"]


async def test_a_worker_that_does_not_read_holds_its_callers_back(shared_cache: Path, tmp_path: Path) -> None:
    async with running(shared_cache, tmp_path) as setting:
        child = setting.child
        tasks = [asyncio.ensure_future(setting.env.run_group(g)) for g in setting.groups("block", 1)]
        tasks += [asyncio.ensure_future(setting.env.run_group(g)) for g in setting.groups("pass", 5_000)]
        await until(lambda: child.full, what="the channel to the worker to be full")
        # whoever has not been held back yet gets its turn now
        for _ in range(10):
            await asyncio.sleep(0)
        assert WINDOW_BYTES <= child._work.unsent() <= WINDOW_BYTES + 64 * KIB
        (tmp_path / "go").touch()
        assert sum(len(outcomes) for outcomes in await asyncio.gather(*tasks)) == 5_001 * GROUP
