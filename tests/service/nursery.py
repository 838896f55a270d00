"""Programs of the service as processes that are forked from one which has loaded all of it, so each starts at once.

`Nursery.start` is as `subprocess.Popen` for a module of this project. What the command line itself starts is not
started this way. Run as a program, this is the process that forks; it ends with whoever holds the other end of its
socket, and so does everything that it has forked.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

import pytest

ROOT: Final = Path(__file__).parents[2]
LOADED: Final = (
    "runner.service.http.serving",
    "runner.service.http.state",
    "runner.service.executor.process",
    "alembic.command",
)
PATIENCE_S: Final = 120.0
REQUEST_BYTES: Final = 1 << 20
OWN: Final = 512
"""Descriptors of a new process are kept from here on until they have the numbers that were asked for."""


class Child:
    """A forked process, used as `subprocess.Popen` is.

    Args:
        pid: Its id.
        stdin: What it reads, if that was asked for.
        stdout: What it writes, if that was asked for.
    """

    def __init__(self, pid: int, handle: int, ending: int, stdin: IO[str] | None, stdout: IO[str] | None) -> None:
        self.pid = pid
        self.stdin = stdin
        self.stdout = stdout
        self.returncode: int | None = None
        self._handle = handle
        self._ending = ending

    def poll(self) -> int | None:
        """Return its exit code if it has ended."""
        return self._ended(0)

    def wait(self, timeout: float = PATIENCE_S) -> int:
        """Wait for its end and return its exit code."""
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
        return code

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)

    def _ended(self, timeout: float) -> int | None:
        if self.returncode is None:
            waiting = select.poll()
            waiting.register(self._ending, select.POLLIN)
            if waiting.poll(timeout * 1000):
                said = os.read(self._ending, 16)
                assert said, "the process that forks has ended"
                self.returncode = int(said)
                os.close(self._ending)
                os.close(self._handle)
        return self.returncode


class Nursery:
    """Starts processes.

    Args:
        connection: To the process that forks.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def start(
        self,
        module: str,
        *arguments: str,
        env: Mapping[str, str],
        stdin: bool = False,
        stdout: IO[Any] | None = None,
        stderr: IO[Any] | None = None,
        pass_fds: Sequence[int] = (),
    ) -> Child:
        """Run a module as `python -m` does.

        Args:
            module: Its name.
            arguments: Of the program.
            env: Its whole environment.
            stdin: Whether `Child.stdin` is its standard input, which is empty otherwise.
            stdout: Where it writes; `None` has it read through `Child.stdout`.
            stderr: Where it writes errors; `None` is where this process does.
            pass_fds: Descriptors that it has by the same numbers.
        """
        ending, ended = os.pipe()
        given = [ended]
        mine: dict[int, IO[str]] = {}
        targets = {2: 2 if stderr is None else stderr.fileno(), **{number: number for number in pass_fds}}
        if stdin:
            targets[0], writing = os.pipe()
            given.append(targets[0])
            mine[0] = os.fdopen(writing, "w", encoding="utf-8")
        if stdout is None:
            reading, targets[1] = os.pipe()
            given.append(targets[1])
            mine[1] = os.fdopen(reading, encoding="utf-8")
        else:
            targets[1] = stdout.fileno()
        request = {"module": module, "arguments": arguments, "env": dict(env), "targets": [*targets]}
        socket.send_fds(self._connection, [json.dumps(request).encode()], [ended, *targets.values()])
        said, (handle,), _, _ = socket.recv_fds(self._connection, 64, 1)
        for descriptor in given:
            os.close(descriptor)
        return Child(int(said), handle, ending, mine.get(0), mine.get(1))


@contextmanager
def running() -> Iterator[Nursery]:
    """Have a process that forks for the length of the context."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with here:
        with there:
            process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(there.fileno())],
                cwd=ROOT,
                pass_fds=[there.fileno()],
                stdin=subprocess.DEVNULL,
            )
        try:
            here.settimeout(PATIENCE_S)
            assert here.recv(64) == b"ready"
            yield Nursery(here)
        finally:
            here.close()
            process.wait(PATIENCE_S)


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    """What starts the service's processes in this session."""
    with running() as started:
        yield started


# -- the process that forks -----------------------------------------------------------------------------------


def main() -> None:
    for name in LOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    connection = socket.socket(fileno=int(sys.argv[1]))
    connection.send(b"ready")
    children: dict[int, tuple[int, int]] = {}
    waiting = select.poll()
    waiting.register(connection, select.POLLIN)
    try:
        while True:
            for descriptor, _ in waiting.poll():
                if descriptor != connection.fileno():
                    waiting.unregister(descriptor)
                    tell_end(descriptor, *children.pop(descriptor))
                    continue
                said, descriptors, _, _ = socket.recv_fds(connection, REQUEST_BYTES, 64)
                if not said:
                    return
                pid = fork(json.loads(said), descriptors)
                handle = os.pidfd_open(pid)
                children[handle] = (pid, descriptors[0])
                waiting.register(handle, select.POLLIN)
                for other in descriptors[1:]:
                    os.close(other)
                socket.send_fds(connection, [str(pid).encode()], [handle])
    finally:
        for handle, (pid, ended) in children.items():
            signal.pidfd_send_signal(handle, signal.SIGKILL)
            tell_end(handle, pid, ended)


def tell_end(handle: int, pid: int, ended: int) -> None:
    _, status = os.waitpid(pid, 0)
    # whoever asked may be gone
    with contextlib.suppress(BrokenPipeError):
        os.write(ended, str(os.waitstatus_to_exitcode(status)).encode())
    os.close(ended)
    os.close(handle)


def fork(request: dict[str, Any], descriptors: list[int]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        become(request["targets"], descriptors[1:])
        os.environ.clear()
        os.environ.update(request["env"])
        sys.argv = [request["module"], *request["arguments"]]
        runpy.run_module(request["module"], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        with contextlib.suppress(OSError):
            sys.stderr.flush()
        os._exit(code)


def become(targets: list[int], descriptors: list[int]) -> None:
    """Have these descriptors by these numbers, and no others; and end with the process that forks."""
    assert ctypes.CDLL(None).prctl(1, signal.SIGKILL) == 0
    kept = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, OWN) for descriptor in descriptors]
    os.closerange(3, OWN)
    for target, descriptor in zip(targets, kept, strict=True):
        os.dup2(descriptor, target)
    os.closerange(OWN, OWN + len(kept))


if __name__ == "__main__":
    main()
