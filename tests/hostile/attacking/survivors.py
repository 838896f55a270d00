"""Processes that are to be there when the program is gone: made, found and ended."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from tests.hostile.attacking.target import Target


def _command(target: Target, seconds: int) -> list[str]:
    return ["/bin/sleep", f"{seconds}.{target.caller}"]


def leave_one(target: Target, seconds: int) -> None:
    """Start a process that detaches itself and sleeps; its time and the caller's number tell it from others."""
    command = _command(target, seconds)
    begun, beginning = os.pipe2(os.O_CLOEXEC)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            null = os.open(os.devnull, os.O_RDWR)
            for number in range(3):
                os.dup2(null, number)
            os.execv(command[0], command)
        os._exit(0)
    os.close(beginning)
    # closed once it has become that program
    os.read(begun, 1)


def ended(target: Target, seconds: int) -> bool:
    """Whether such a process is there; end it."""
    line = b"".join(word.encode() + b"\0" for word in _command(target, seconds))
    found = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and _is(entry, line)]
    for pid in found:
        os.kill(pid, signal.SIGKILL)
    return bool(found)


def _is(entry: Path, line: bytes) -> bool:
    with contextlib.suppress(OSError):
        return (entry / "cmdline").read_bytes() == line
    return False
