"""The pool against workers whose start and end come at awkward moments: none is lost, none is left."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from runner import pool as pool_module
from runner.broker import Broker
from runner.errors import WorkerLostError
from runner.limits import Limits
from runner.pool import Listeners, Pool
from runner.record import WorkerEvent
from runner.redaction import Redactor


class Worker:
    """Stands for a child: the test says when it is ready."""

    started: list[asyncio.Future[Worker]] = []  # noqa: RUF012 - the fixture makes a new one for each test

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.ready = SimpleNamespace()
        self.alive = True
        self.load = 0
        self.closed = 0
        self.conversation = SimpleNamespace(doubtful=False, settled=self._nothing)

    async def _nothing(self) -> None:
        """There is never anything to wait for."""

    async def close(self) -> None:
        self.closed += 1

    @classmethod
    async def start(cls, *_: object) -> Worker:
        future: asyncio.Future[Worker] = asyncio.get_running_loop().create_future()
        cls.started.append(future)
        return await future


class Setting:
    def __init__(self) -> None:
        self.events: list[WorkerEvent] = []
        redactor = Redactor()
        listeners = Listeners(
            output=lambda _: None,
            ended=lambda _: None,
            worker=self.events.append,
            loaded=lambda _: None,
            stalled=lambda _: None,
        )
        launch: Any = SimpleNamespace(limits=Limits())
        self.pool = Pool(launch, 1, Broker(None, redactor), redactor, listeners)

    async def start(self) -> tuple[asyncio.Task[Any], asyncio.Future[Worker]]:
        """Begin to start the pool; return that, and what its worker waits for."""
        task = asyncio.ensure_future(self.pool.start())
        while not Worker.started:
            await asyncio.sleep(0)
        return task, Worker.started[0]


@pytest.fixture
async def setting(monkeypatch: pytest.MonkeyPatch) -> Setting:
    monkeypatch.setattr(pool_module, "Child", Worker)
    monkeypatch.setattr(Worker, "started", [])
    return Setting()


async def test_a_worker_that_becomes_ready_as_the_pool_is_closed_is_closed_too(setting: Setting) -> None:
    starting, ready = await setting.start()
    worker = Worker(7)
    ready.set_result(worker)
    await asyncio.sleep(0)
    # it is there by now, and the one that waits for it has not been told yet
    assert setting.pool.children == []
    await setting.pool.close()
    with pytest.raises(WorkerLostError, match="was closed"):
        await starting
    assert worker.closed == 1
    assert setting.events == []


async def test_a_worker_that_becomes_ready_as_its_caller_is_cancelled_is_kept(setting: Setting) -> None:
    starting, ready = await setting.start()
    worker = Worker(7)
    ready.set_result(worker)
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert [child.pid for child in setting.pool.children] == [7]
    await setting.pool.close()
    assert worker.closed == 1


async def test_a_worker_that_is_being_started_is_given_up_when_the_pool_is_closed(setting: Setting) -> None:
    starting, ready = await setting.start()
    await setting.pool.close()
    with pytest.raises(WorkerLostError, match="was closed"):
        await starting
    assert ready.cancelled()


async def test_a_closed_pool_starts_nothing(setting: Setting) -> None:
    await setting.pool.close()
    with pytest.raises(WorkerLostError, match="was closed"):
        await setting.pool.start()
    assert Worker.started == []
