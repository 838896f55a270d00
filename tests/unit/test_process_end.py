"""Process trees with real processes: the one way to end them, and that nothing of them is left."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path

import pytest

from runner import process as process_module
from runner.process import Exit
from tests.unit.process_lab import Output, exists, gone_soon, running, start, state


@pytest.fixture
async def output() -> Output:
    return Output()


# -- the end of a tree ----------------------------------------------------------------------------------------

IGNORES = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print('ready', flush=True)
time.sleep(600)
"""
STOPS = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(12))
print('ready', flush=True)
time.sleep(600)
"""
DETACHES = """
import os, time
read, write = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.setsid()
        os.write(write, b'%d\\n' % os.getpid())
        os.closerange(0, 3)
        time.sleep(600)
    os._exit(0)
os.wait()
print('ready', os.read(read, 100).decode(), flush=True)
time.sleep(600 * WAIT)
"""


async def test_a_process_that_stops_when_asked_is_not_killed(output: Output) -> None:
    async with running(STOPS, output) as process:
        await output.wait_for(b"ready")
        assert await process.end(30) == Exit(code=12)


async def test_a_process_that_ignores_sigterm_is_killed_after_the_grace(output: Output) -> None:
    async with running(IGNORES, output) as process:
        await output.wait_for(b"ready")
        assert await process.end(0.1) == Exit(signal=signal.SIGKILL, escalated=True)
        assert not exists(process.pid)


async def test_without_grace_it_is_killed_at_once(output: Output) -> None:
    async with running(STOPS, output) as process:
        await output.wait_for(b"ready")
        assert await process.end(0) == Exit(signal=signal.SIGKILL, escalated=True)


async def test_a_kill_shortens_the_grace_that_runs(output: Output) -> None:
    async with running(IGNORES, output) as process:
        await output.wait_for(b"ready")
        ending = asyncio.ensure_future(process.end(3600))
        await asyncio.sleep(0)
        process.kill()
        assert await ending == Exit(signal=signal.SIGKILL, escalated=True)


async def test_asking_again_does_not_prolong_the_grace(output: Output) -> None:
    async with running(IGNORES, output) as process:
        await output.wait_for(b"ready")
        first = asyncio.ensure_future(process.end(0.1))
        await asyncio.sleep(0)
        second = asyncio.ensure_future(process.end(3600))
        assert await first == await second == Exit(signal=signal.SIGKILL, escalated=True)


async def test_many_tasks_may_end_it_at_once(output: Output) -> None:
    async with running(STOPS, output) as process:
        await output.wait_for(b"ready")
        ends = await asyncio.gather(*(process.end(30) for _ in range(10)), process.wait(), process.exited())
        assert set(ends) == {Exit(code=12)}


async def test_an_end_that_was_begun_completes_though_its_caller_is_cancelled(output: Output) -> None:
    async with running(IGNORES, output) as process:
        await output.wait_for(b"ready")
        task = asyncio.ensure_future(process.end(0.05))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await process.wait() == Exit(signal=signal.SIGKILL, escalated=True)


async def test_a_grandchild_that_detached_itself_is_gone_after_an_end(output: Output) -> None:
    async with running(DETACHES.replace("WAIT", "1"), output) as process:
        await output.wait_for(b"\n")
        detached = int(output.data.split()[1])
        assert exists(detached)
        await process.end(0.2)
        assert not exists(detached)


async def test_a_grandchild_that_detached_itself_is_gone_when_the_process_exits(output: Output) -> None:
    process = await start(DETACHES.replace("WAIT", "0"), output)
    assert await process.wait() == Exit(code=0)
    assert not exists(int(output.data.split()[1]))


async def test_processes_that_fork_and_end_without_pause_are_gone_after_the_end(output: Output) -> None:
    code = """
import os, time
end = time.monotonic() + 60
print(os.getpgid(0), flush=True)
while time.monotonic() < end:
    if os.fork():
        os._exit(0)
"""
    process = await start(code, output)
    await process.wait()
    assert not session(int(output.data))


def session(leader: int) -> list[int]:
    """Processes of a session."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == leader and fields[0] not in "ZX":
                    found.append(int(entry.name))
    return found


async def test_a_tree_of_many_processes_is_gone_after_the_end(output: Output) -> None:
    code = """
import os, time
for _ in range(5):
    os.fork()
os.write(1, b'x')
time.sleep(600)
"""
    async with running(code, output) as process:
        await output.wait_for(b"x" * 32)
        await process.end(0)
        assert not session(process.pid)


async def test_a_process_stopped_by_a_signal_is_ended_too(output: Output) -> None:
    async with running("print('ready', flush=True); import os; os.kill(os.getpid(), 19)", output) as process:
        await output.wait_for(b"ready")
        while state(process.pid) != "T":
            await asyncio.sleep(0.01)
        assert await process.end(0.1) == Exit(signal=signal.SIGKILL, escalated=True)


async def test_what_could_not_be_ended_is_told_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    # its supervisor gives up at once
    monkeypatch.setattr(process_module, "REAP_S", 0.0)
    process = await start("import os, time\nif os.fork() == 0: time.sleep(600)")
    how = await process.wait()
    assert how.code == 0
    (left,) = how.left
    assert exists(left)
    os.kill(left, signal.SIGKILL)


# -- the end of a supervisor ----------------------------------------------------------------------------------


async def test_when_the_supervisor_is_killed_the_process_is_killed_and_its_end_is_unknown(output: Output) -> None:
    async with running("import time; print('ready', flush=True); time.sleep(600)", output) as process:
        await output.wait_for(b"ready")
        os.kill(process._supervisor.pid, signal.SIGKILL)
        assert await process.wait() == Exit(lost=True)
        assert gone_soon(process.pid)


async def test_a_process_that_kills_its_supervisor_is_an_unknown_end() -> None:
    process = await start("import os, time; os.kill(os.getppid(), 9); time.sleep(600)")
    assert await process.wait() == Exit(lost=True)
    assert gone_soon(process.pid)


async def test_a_stopped_supervisor_does_not_hold_up_a_kill(monkeypatch: pytest.MonkeyPatch, output: Output) -> None:
    monkeypatch.setattr(process_module, "REAP_S", 0.1)
    code = "import os, time; os.kill(os.getppid(), 19); print('ready', flush=True); time.sleep(600)"
    process = await start(code, output)
    await output.wait_for(b"ready")
    process.kill()
    process.kill()
    assert await process.wait() == Exit(lost=True)
    assert gone_soon(process.pid)


async def test_a_stopped_supervisor_does_not_hold_up_an_end(monkeypatch: pytest.MonkeyPatch, output: Output) -> None:
    monkeypatch.setattr(process_module, "REAP_S", 0.1)
    code = "import os, time; os.kill(os.getppid(), 19); print('ready', flush=True); time.sleep(600)"
    process = await start(code, output)
    await output.wait_for(b"ready")
    assert await process.end(0) == Exit(lost=True)
    assert gone_soon(process.pid)
