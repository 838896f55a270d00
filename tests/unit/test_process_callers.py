"""Process trees of callers in odd situations: busy threads, ignored signals, process 1. Nothing accumulates."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from runner.process import Exit, Process
from tests.conftest import require
from tests.unit.process_lab import POLICY, start

ROOT = Path(__file__).parents[2]
TURNS = 200
BUSY_THREADS = 20


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@contextmanager
def busy(threads: int) -> Iterator[None]:
    """Threads that never rest for long: each computes with and without the interpreter's lock, and waits a moment."""
    over = threading.Event()
    data = bytes(100_000)

    def work() -> None:
        while not over.wait(0.002):
            hashlib.sha256(data).digest()
            sum(range(1_000))

    started = [threading.Thread(target=work) for _ in range(threads)]
    for thread in started:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in started:
            thread.join()


async def start_and_stop(turns: int) -> set[Exit]:
    """Start trees one after the other; every other one has to be killed."""
    exits = set()
    for turn in range(turns):
        process = await Process.start(
            ["/bin/sh", "-c", "exec sleep 600" if turn % 2 else "exit 3"],
            env={},
            cwd=Path("/"),
            policy=POLICY,
            stdout=lambda _: None,
        )
        exits.add(await (process.end(0) if turn % 2 else process.wait()))
    return exits


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_hundreds_of_starts_and_stops_beside_busy_threads_leave_nothing() -> None:
    await start_and_stop(2)
    before = open_descriptors()
    with busy(BUSY_THREADS):
        exits = await start_and_stop(TURNS)
    assert exits == {Exit(code=3), Exit(signal=signal.SIGKILL, escalated=True)}
    assert open_descriptors() == before


async def test_a_caller_that_ignores_its_childrens_end_learns_of_it_all_the_same() -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        # the kernel collects the supervisor by itself then
        assert await start_and_stop(2) == {Exit(code=3), Exit(signal=signal.SIGKILL, escalated=True)}
        # and the tree is not to inherit that
        process = await start(
            "import subprocess; raise SystemExit(subprocess.run(['/bin/sh', '-c', 'exit 4']).returncode)"
        )
        assert await process.wait() == Exit(code=4)
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_a_loop_in_another_thread_starts_and_stops_many_at_once() -> None:
    async def many() -> None:
        assert [await asyncio.gather(*(start_and_stop(2) for _ in range(5)))]

    threads = [threading.Thread(target=lambda: asyncio.run(many())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


AS_PROCESS_1 = """
import asyncio, os, signal
from pathlib import Path
from runner.process import Process
from runner.sandbox.policy import SandboxPolicy

async def tree(script):
    return await Process.start(["/bin/sh", "-c", script], env={}, cwd=Path("/"), policy=SandboxPolicy(),
                               stdout=lambda _: None)

async def main():
    assert os.getpid() == 1
    print(await (await tree("(setsid sleep 600 &) ; exit 3")).wait())
    print(await (await tree("exec sleep 600")).end(0))
    # without its supervisor the tree is ours: process 1 inherits what loses its parent
    process = await tree("exec sleep 600")
    os.kill(process._supervisor.pid, signal.SIGKILL)
    print(await process.wait())
    print(sorted(name for name in os.listdir("/proc") if name.isdigit()))

asyncio.run(main())
"""


def test_a_caller_that_is_process_1_of_its_container() -> None:
    require(can_unshare(), "a new pid namespace")
    command = ["unshare", *NAMESPACE, sys.executable, "-c", AS_PROCESS_1]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=50)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "exit code 3",
        "SIGKILL (-9)",
        "an unknown end (its supervisor was killed)",
        # neither a process nor a zombie is left
        "['1']",
    ]


NAMESPACE = [
    "--pid",
    "--fork",
    "--mount-proc",
    "--kill-child",
    *([] if os.geteuid() == 0 else ["--user", "--map-root-user"]),
]


def can_unshare() -> bool:
    return shutil.which("unshare") is not None and (
        subprocess.run(["unshare", *NAMESPACE, "true"], capture_output=True, check=False).returncode == 0
    )
