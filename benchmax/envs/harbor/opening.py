"""Where the sandbox of a trial comes from: whoever runs this process, or a program that it starts.

Comes in: a `SandboxRequest`. Goes out: one end of a connected stream, at the other end of which commands are run (see
`link`). Inside an isolated worker the runner has registered its own opener; in any other process, a trainer for
example, `open_sandbox` starts `python -m runner.trials`, which makes the sandbox and ends with the stream.
"""

from __future__ import annotations

import asyncio
import json
import math
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import IO, Final

ERROR_BYTES: Final = 4096
"""Read of what the program that makes sandboxes says last."""


class SandboxRefusedError(Exception):
    """Raised when a trial gets no sandbox; the text says why, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxRequest:
    """What one trial needs.

    Args:
        rollout_id: The rollout that the trial belongs to.
        cpus: Processors' worth of time at most, or `None` for what the runner's limits allow.
        memory_bytes: Memory at most, or `None`, as above.
        disk_bytes: Disk space at most, or `None`, as above.
        network: Whether its commands may use the network, as far as the process that asks may.

    Raises:
        SandboxRefusedError: a number is none of which there is more than nothing.
    """

    rollout_id: str
    cpus: float | None = None
    memory_bytes: int | None = None
    disk_bytes: int | None = None
    network: bool = False

    def __post_init__(self) -> None:
        for name in ("cpus", "memory_bytes", "disk_bytes"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise SandboxRefusedError(
                    f"a trial sandbox cannot be opened: {name} is {value!r}. Ask for more than nothing."
                )


Opener = Callable[[SandboxRequest], Awaitable[socket.socket]]
"""Returns a connected, non-blocking stream socket that the caller owns; raises `SandboxRefusedError`."""

_registered: list[Opener] = []


def set_opener(opener: Opener | None) -> None:
    """Register where sandboxes come from in this process; `None` goes back to starting `runner.trials`."""
    _registered[:] = [] if opener is None else [opener]


async def open_sandbox(request: SandboxRequest) -> socket.socket:
    """Open a sandbox for one trial.

    Args:
        request: What the trial needs.

    Returns:
        A connected, non-blocking stream socket, owned by the caller. The sandbox ends when it is closed.

    Raises:
        SandboxRefusedError: there is none to be had.
    """
    return await (_registered[0] if _registered else _start)(request)


async def _start(request: SandboxRequest) -> socket.socket:
    """Start `python -m runner.trials`, and wait until it says something or has ended."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with tempfile.TemporaryFile() as errors:
        try:
            program = await asyncio.to_thread(_spawn, request, theirs, errors)
            if await _speaks(ours):
                # it ends with the stream, whatever becomes of this loop; somebody has to collect it then
                threading.Thread(target=program.wait, name="benchmax-trial", daemon=True).start()
                return ours
            code = await asyncio.to_thread(program.wait)
        except BaseException:
            ours.close()
            raise
        ours.close()
        raise SandboxRefusedError(_why(code, errors))


def _spawn(request: SandboxRequest, theirs: socket.socket, errors: IO[bytes]) -> subprocess.Popen[bytes]:
    with theirs:
        descriptor = theirs.fileno()
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "runner.trials", str(descriptor), json.dumps(asdict(request))],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            pass_fds=[descriptor],
        )


async def _speaks(stream: socket.socket) -> bool:
    """Wait for the first byte, which stays where it is; false if the stream has ended instead."""
    loop = asyncio.get_running_loop()
    readable: asyncio.Future[None] = loop.create_future()

    def on_readable() -> None:
        if not readable.done():
            readable.set_result(None)

    loop.add_reader(stream, on_readable)
    try:
        await readable
    finally:
        loop.remove_reader(stream)
    try:
        return bool(stream.recv(1, socket.MSG_PEEK))
    except ConnectionResetError:
        return False


def _why(code: int, errors: IO[bytes]) -> str:
    size = errors.seek(0, 2)
    errors.seek(max(0, size - ERROR_BYTES))
    lines = [line for line in errors.read().decode("utf-8", "replace").splitlines() if line.strip()]
    said = lines[-1].strip() if lines else f"it ended with code {code}"
    if "No module named" in said and "runner" in said:
        return (
            f"a trial sandbox cannot be opened: {sys.executable} has no module runner.trials, which makes it. "
            f"Install benchmax's own distribution there, or choose another Harbor environment."
        )
    return f"a trial sandbox cannot be opened: {said}"
