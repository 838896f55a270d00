"""A server's executors: started again when they end, and ended with the server, however that ends."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from runner.errors import SandboxUnavailableError
from runner.sandbox.machine import look
from runner.service.configuration import variables_of
from runner.service.executor import Supervisor, confinement
from runner.service.settings import ExecutorSettings, Settings
from tests.service.executor.house import PATIENCE_S, House, bundle_of

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

SERVER = """
import asyncio, os
from runner.service.configuration import read_settings
from runner.service.executor import Supervisor

async def main():
    async with Supervisor(read_settings(environ=os.environ), 2) as supervisor:
        while len(supervisor.pids) < 2:
            await asyncio.sleep(0.01)
        print(*supervisor.pids, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


async def reached(fact: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not fact():
        assert time.monotonic() < deadline, f"waited {PATIENCE_S} s for {what}"
        await asyncio.sleep(0.02)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


async def test_an_executor_that_was_killed_is_started_again_and_takes_jobs(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BENCHMAX_CACHE_DIR", str(house.cache))
    async with Supervisor(house.settings, 1) as supervisor:
        await reached(lambda: len(supervisor.pids) == 1, "an executor")
        first = supervisor.pids[0]
        os.kill(first, signal.SIGKILL)
        await reached(lambda: len(supervisor.pids) == 1 and supervisor.pids[0] != first, "another executor")
        assert (await house.over(await house.submit(bundle_of("Unloadable"), "batch"))).state == "done"
        second = supervisor.pids[0]
    assert not alive(second)


async def test_executors_end_with_a_server_that_was_killed(house: House) -> None:
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER],
        env={**os.environ, **variables_of(house.settings), "BENCHMAX_CACHE_DIR": str(house.cache)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        executors = [int(pid) for pid in server.stdout.readline().split()]
        assert len(executors) == 2
        assert all(map(alive, executors))
    finally:
        server.kill()
        server.communicate()
    await reached(lambda: not any(map(alive, executors)), "the end of the executors")


def test_a_machine_that_cannot_confine_uploads_says_so_and_what_would_be_risked() -> None:
    machine = replace(look(), bubblewrap=None)
    with pytest.raises(SandboxUnavailableError, match="--insecure-sandbox"):
        confinement(Settings(), machine=machine)
    weaker = confinement(Settings(executors=ExecutorSettings(insecure_sandbox=True)), machine=machine)
    assert weaker.sandbox in ("landlock", "off")
    assert weaker.network == "open"
    assert weaker.provisioning.only_binary
