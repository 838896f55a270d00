"""What tests of processes share: small programs of this interpreter, and what the process table says of them."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from runner.process import Process
from runner.sandbox.policy import SandboxPolicy

POLICY = SandboxPolicy()


class Output:
    """What a process wrote so far; tests wait for words in it."""

    def __init__(self) -> None:
        self.data = b""
        self._more = asyncio.Event()

    def write(self, data: bytes) -> None:
        self.data += data
        self._more.set()

    async def wait_for(self, word: bytes) -> None:
        while word not in self.data:
            self._more.clear()
            await self._more.wait()

    def lines(self) -> list[str]:
        return self.data.decode().splitlines()


async def start(code: str, output: Output | None = None, **options: Any) -> Process:
    """Start a program of this interpreter; both of its streams go to the output."""
    options = {"env": {"PATH": "/usr/bin:/bin"}, "cwd": Path("/"), "policy": POLICY, **options}
    sink = None if output is None else output.write
    return await Process.start([sys.executable, "-I", "-c", code], stdout=sink, stderr=sink, **options)


@asynccontextmanager
async def running(code: str, output: Output | None = None, **options: Any) -> AsyncIterator[Process]:
    """Start a program, and end it in any case."""
    process = await start(code, output, **options)
    try:
        yield process
    finally:
        await process.end(0)


def state(pid: int) -> str:
    """The letter that the process table has for a process; `X` for none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


def exists(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    return state(pid) not in "ZX"


def gone_soon(*pids: int, within_s: float = 2.0) -> bool:
    """Whether the processes end within some time; only a failure waits that long."""
    deadline = time.monotonic() + within_s
    while any(map(exists, pids)):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
