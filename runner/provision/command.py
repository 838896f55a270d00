"""Runs one program of the provisioning to its end, under deadlines, as a supervised tree.

Comes in: a command with its whole environment. Goes out: exit code and output. When the caller is cancelled or a
deadline passes, the whole tree is ended before anything is raised.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from runner.egress import Egress, Handler, take_over
from runner.errors import SandboxUnavailableError
from runner.limits import MIB
from runner.process import OutputTail, Process
from runner.sandbox.bubblewrap import LISTENERS_FD
from runner.sandbox.endpoints import Endpoint, listeners
from runner.sandbox.policy import SandboxPolicy

STDOUT_BYTES: Final = 32 * MIB
"""A lock of some thousand packages with all their files is a few MiB."""

STDERR_BYTES: Final = 1 * MIB
"""Half from the beginning, half from the end; errors are at the end."""

BUSY_CPU_S: Final = 0.5
"""Processor time that counts as work; waiting for a socket that never answers uses next to none."""


@dataclass(frozen=True, slots=True)
class Finished:
    """How a program ended, with what it printed; `reached` has the limits that its whole tree has met."""

    code: int
    stdout: str
    stderr: str
    how: str
    reached: tuple[str, ...] = ()

    @property
    def output(self) -> str:
        """Everything it printed."""
        return f"{self.stdout}\n{self.stderr}".strip()


class DeadlineError(Exception):
    """Raised when a program had to be ended; `silent` tells which of the two deadlines passed."""

    def __init__(self, *, silent: bool, after_s: float, last_line: str) -> None:
        super().__init__()
        self.silent = silent
        self.after_s = after_s
        self.last_line = last_line


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Until when a program may run.

    Args:
        at: Moment on the monotonic clock by which it must have ended.
        silence_s: Seconds without a sign of progress after which it is taken to hang. Signs are output, bytes
            written anywhere and processor time used: a large download or compilation prints nothing for minutes.
    """

    at: float
    silence_s: float


async def run(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path,
    deadlines: Deadlines,
    policy: SandboxPolicy,
    routes: Mapping[Endpoint, Handler] | None = None,
    on_line: Callable[[str], None] | None = None,
    on_printed_line: Callable[[str], None] | None = None,
    on_written: Callable[[int], None] | None = None,
) -> Finished:
    """Run a program and wait for its end.

    Args:
        argv: The command; the first word is an absolute path.
        env: Its whole environment.
        cwd: Its working directory.
        deadlines: When to give up.
        policy: How it is confined.
        routes: What becomes of its connections to each of the policy's endpoints.
        on_line: Called with each line of standard error.
        on_printed_line: Called with each line of standard output.
        on_written: Called about once a second with the bytes its processes have written, to whatever.

    Raises:
        DeadlineError: a deadline passed; nothing of the tree is left.
        RunnerError: the command could not be executed.
        SandboxUnavailableError: the sandbox could not be made.
    """
    out, err = OutputTail(STDOUT_BYTES), OutputTail(STDERR_BYTES)
    printed, said = _Lines(on_printed_line), _Lines(on_line)

    def on_output(data: bytes) -> None:
        out.write(data)
        printed.feed(data)

    def on_error_output(data: bytes) -> None:
        err.write(data)
        said.feed(data)

    process, egress = await _started(argv, env, cwd, policy, routes or {}, on_output, on_error_output)
    waiter = asyncio.ensure_future(process.wait())
    begun = time.monotonic()
    watch = _Watch(process.pid, out, err)
    try:
        while True:
            now = time.monotonic()
            left = deadlines.at - now
            if left <= 0:
                raise DeadlineError(silent=False, after_s=now - begun, last_line=_last(out, err))
            pause = min(left, max(0.05, min(1.0, deadlines.silence_s / 4)))
            done, _ = await asyncio.wait([waiter], timeout=pause)
            if done:
                break
            still_s = watch.still_s()
            if on_written is not None:
                on_written(watch.written)
            if still_s > deadlines.silence_s:
                raise DeadlineError(silent=True, after_s=still_s, last_line=_last(out, err))
    finally:
        if not waiter.done():
            await process.end(0.5)
            await waiter
        await egress.aclose()
    how = waiter.result()
    if how.refused:
        raise SandboxUnavailableError(
            f"the sandbox could not be made: {_last(out, err) or how}.", hint="`benchmax doctor` says what works here."
        )
    return Finished(how.code if how.code is not None else -1, out.text(), err.text(), str(how), how.reached)


async def _started(
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: Path,
    policy: SandboxPolicy,
    routes: Mapping[Endpoint, Handler],
    on_output: Callable[[bytes], None],
    on_error_output: Callable[[bytes], None],
) -> tuple[Process, Egress]:
    """Start a program, and take over what listens in a network of its own."""
    own = policy.network != "open"
    listening, theirs = socket.socketpair()
    with listening, theirs:
        process = await Process.start(
            argv,
            env=env,
            cwd=cwd,
            policy=policy,
            descriptors={LISTENERS_FD: theirs.fileno()} if own else None,
            stdout=on_output,
            stderr=on_error_output,
        )
        try:
            expected = listeners(policy.endpoints) if own else ()
            taken = zip(take_over(listening, len(expected)), expected, strict=True)
            return process, Egress((found, routes[where.endpoint]) for found, where in taken)
        except BaseException:
            await process.end(0)
            raise


class _Lines:
    """Cuts a stream into lines for a listener."""

    def __init__(self, on_line: Callable[[str], None] | None) -> None:
        self._on_line = on_line
        self._rest = b""

    def feed(self, data: bytes) -> None:
        if self._on_line is None:
            return
        *whole, self._rest = (self._rest + data).split(b"\n")
        self._rest = self._rest[-4096:]
        for line in whole:
            text = line.decode("utf-8", "replace").rstrip()
            if text:
                self._on_line(text)


class _Watch:
    """Knows for how long a tree has shown no sign of progress."""

    def __init__(self, pid: int, out: OutputTail, err: OutputTail) -> None:
        self._pid = pid
        self._out = out
        self._err = err
        self._moved_at = time.monotonic()
        self._printed = 0
        self._cpu_s = 0.0
        self.written = 0

    def still_s(self) -> float:
        """Seconds since the last sign of progress."""
        printed = self._out.total + self._err.total
        written, cpu_s = _activity(self._pid)
        if printed != self._printed or written > self.written or cpu_s - self._cpu_s >= BUSY_CPU_S:
            self._moved_at = time.monotonic()
            self._printed, self._cpu_s = printed, cpu_s
        # processes that ended take their counters with them, so the sums can also fall
        self.written, self._cpu_s = written, min(self._cpu_s, cpu_s)
        return time.monotonic() - self._moved_at


def _activity(root: int) -> tuple[int, float]:
    """Sum the bytes written and the processor seconds of a process, its session and all below it.

    Zeros where /proc is missing.
    """
    proc = Path("/proc")
    if not proc.is_dir():
        return 0, 0.0
    found: dict[int, tuple[int, int, int]] = {}
    for entry in proc.iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError, ValueError, IndexError):
            # the name in brackets may hold anything, so count from the last bracket
            fields = (entry / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            found[int(entry.name)] = int(fields[1]), int(fields[3]), int(fields[11]) + int(fields[12])
    # a sandbox puts what is in it into a session of its own
    members = {pid for pid, (_, session, _) in found.items() if root in (pid, session)}
    while more := {pid for pid, (parent, _, _) in found.items() if parent in members} - members:
        members |= more
    written = 0
    for pid in members:
        with contextlib.suppress(OSError, ValueError, IndexError):
            for line in (proc / str(pid) / "io").read_text(encoding="ascii").splitlines():
                if line.startswith("wchar:"):
                    written += int(line.split()[1])
    return written, sum(found[pid][2] for pid in members) / 100


def _last(out: OutputTail, err: OutputTail) -> str:
    for tail in (err, out):
        if lines := tail.last_lines(1):
            return lines[0].strip()
    return ""
