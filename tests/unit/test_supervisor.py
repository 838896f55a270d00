"""The supervisor outlives nothing: when the caller goes, however it goes, nothing of its tree stays."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from runner.process import SUPERVISOR
from runner.sandbox.supervisor import descendants
from tests.unit.process_lab import exists

ROOT = Path(__file__).parents[2]

TREE = """
import os, time
read, write = os.pipe()

def stay(pid=None):
    os.write(write, b'%d\\n' % os.getpid())
    time.sleep(600)

# a child with a child
if os.fork() == 0:
    os.fork()
    stay()
# one that has left session, parent and streams behind
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.setsid()
        os.closerange(0, 3)
        stay()
    os._exit(0)
os.wait()
pids = b''
while pids.count(b'\\n') < 3:
    pids += os.read(read, 100)
print('tree', os.getpid(), os.getppid(), *pids.decode().split(), flush=True)
time.sleep(600)
"""

CALLER = """
import asyncio, os, signal, sys, threading
from pathlib import Path
from runner.process import Process
from runner.sandbox.policy import SandboxPolicy

async def main():
    seen = asyncio.Event()

    def sink(data):
        os.write(1, data)
        seen.set()

    process = await Process.start([sys.executable, '-I', '-c', {tree!r}], env={{}}, cwd=Path('/'),
                                  policy=SandboxPolicy(), stdout=sink)
    await seen.wait()
    {then}
    await asyncio.Event().wait()

{run}
"""


def left_after(pids: list[int], within_s: float) -> list[int]:
    deadline = time.monotonic() + within_s
    while left := [pid for pid in pids if exists(pid)]:
        if time.monotonic() > deadline:
            return left
        time.sleep(0.01)
    return []


@contextmanager
def caller(then: str = "", run: str = "asyncio.run(main())") -> Iterator[tuple[subprocess.Popen[bytes], list[int]]]:
    """A process that has started a tree; and the ids of the tree's processes, supervisor included."""
    code = CALLER.format(tree=TREE, then=then or "pass", run=run)
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        pids: list[int] = []
        try:
            words = process.stdout.readline().split()
            assert words[:1] == [b"tree"]
            pids = [int(word) for word in words[1:]]
            assert len(pids) == 5
            yield process, pids
        finally:
            process.kill()
            for pid in pids:
                if exists(pid):
                    os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGINT])
def test_when_the_caller_is_killed_nothing_of_the_tree_is_left(number: signal.Signals) -> None:
    with caller() as (process, pids):
        process.send_signal(number)
        assert left_after(pids, 2.0) == []


def test_when_the_caller_exits_without_a_word_nothing_of_the_tree_is_left() -> None:
    with caller(then="os._exit(3)") as (process, pids):
        assert process.wait(10) == 3
        assert left_after(pids, 2.0) == []


def test_the_end_of_the_thread_that_started_the_tree_does_not_end_it() -> None:
    run = """
loop = asyncio.new_event_loop()

def other():
    task = loop.create_task(main())
    loop.run_forever()
    print('left', flush=True)

thread = threading.Thread(target=other)
thread.start()
thread.join()
signal.pause()
"""
    with caller(then="asyncio.get_running_loop().stop()", run=run) as (process, pids):
        assert process.stdout is not None
        assert process.stdout.readline() == b"left\n"
        # the thread is over, the process is not
        assert all(map(exists, pids))
        process.kill()
        assert left_after(pids, 2.0) == []


def test_a_caller_that_left_copies_of_its_sockets_with_a_fork_is_noticed_all_the_same() -> None:
    then = """
    if os.fork() == 0:
        import time
        os.write(1, b'fork %d\\n' % os.getpid())
        time.sleep(600)
"""
    with caller(then=then) as (process, pids):
        assert process.stdout is not None
        fork = int(process.stdout.readline().split()[1])
        try:
            process.kill()
            assert left_after(pids, 2.0) == []
            assert exists(fork)
        finally:
            os.kill(fork, signal.SIGKILL)


def test_a_caller_that_execs_another_program_has_gone_too() -> None:
    with caller(then="os.execv('/bin/sleep', ['sleep', '600'])") as (_, pids):
        assert left_after(pids, 10.0) == []


# -- the supervisor as a program ------------------------------------------------------------------------------


class Control:
    """The caller's end of a supervisor, without any of the caller's code."""

    def __init__(self, sock: socket.socket, supervisor: subprocess.Popen[bytes]) -> None:
        self.sock = sock
        self.supervisor = supervisor
        self.lines = sock.makefile("rb")

    def say(self, **message: Any) -> None:
        self.sock.sendall(json.dumps(message).encode() + b"\n")

    def hear(self) -> dict[str, Any] | None:
        line = self.lines.readline()
        return json.loads(line) if line else None

    def written(self) -> bytes:
        """The next byte on the standard output that the supervisor's child has from it."""
        assert self.supervisor.stdout is not None
        return self.supervisor.stdout.read(1)

    def config(self, code: str, **changes: Any) -> None:
        config = {
            "argv": [sys.executable, "-I", "-c", code],
            "env": {},
            "cwd": "/",
            "fds": {},
            "steps": [],
            "umask": 0o077,
            "relayed": False,
            "caller": os.getpid(),
            "remove": None,
            "groups": [],
            "disk": None,
            "give_up": 5.0,
        }
        self.say(**{**config, **changes})


@pytest.fixture
def control() -> Iterator[Control]:
    ours, theirs = socket.socketpair()
    with (
        ours,
        subprocess.Popen(
            [sys.executable, "-I", "-S", str(SUPERVISOR), str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            bufsize=0,
        ) as supervisor,
    ):
        theirs.close()
        it = Control(ours, supervisor)
        yield it
        it.lines.close()
        ours.close()
        assert supervisor.wait(10) is not None


def test_it_tells_start_exit_and_the_end_of_the_tree_in_this_order(control: Control) -> None:
    control.config("raise SystemExit(3)")
    started = control.hear()
    assert started is not None
    assert started.keys() == {"started"}
    assert control.hear() == {"exited": 3 << 8}
    assert control.hear() == {"gone": 0, "left": [], "reached": []}
    assert control.hear() is None
    assert control.supervisor.wait(10) == 0


def test_it_counts_what_it_had_to_kill(control: Control) -> None:
    control.config("import os, time\nif os.fork() == 0: time.sleep(600)")
    assert control.hear() is not None
    assert control.hear() == {"exited": 0}
    assert control.hear() == {"gone": 1, "left": [], "reached": []}


def test_it_tells_what_it_could_not_end(control: Control) -> None:
    # what is killed needs a moment to die, and it has none
    control.config("import os, time\nif os.fork() == 0: time.sleep(600)", give_up=0.0)
    assert control.hear() is not None
    assert control.hear() == {"exited": 0}
    gone = control.hear()
    assert gone is not None
    (left,) = gone["left"]
    os.kill(left, signal.SIGKILL)


def test_it_passes_a_signal_on_to_the_process_alone(control: Control) -> None:
    code = """
import os, signal, time
signal.signal(signal.SIGUSR1, lambda *_: os._exit(7))
child = os.fork()
os.write(1, b'R')
time.sleep(600)
"""
    control.config(code)
    assert control.hear() is not None
    assert control.written() + control.written() == b"RR"
    control.say(signal=signal.SIGUSR1)
    assert control.hear() == {"exited": 7 << 8}
    assert control.hear() == {"gone": 1, "left": [], "reached": []}


def test_it_tells_that_a_command_cannot_be_executed(control: Control) -> None:
    control.config("", argv=["/no/such"])
    failed = control.hear()
    assert failed is not None
    assert "No such file" in failed["failed"]
    assert control.hear() is None


def test_it_starts_nothing_for_a_caller_that_is_not_its_parent(control: Control) -> None:
    control.config("pass", caller=1)
    assert control.hear() is None
    assert control.supervisor.wait(10) == 1


def test_it_starts_nothing_for_a_caller_that_left_before_it_said_what(control: Control) -> None:
    control.sock.sendall(b'{"argv": ')
    control.sock.shutdown(socket.SHUT_WR)
    assert control.hear() is None
    assert control.supervisor.wait(10) == 1


def test_it_ignores_the_signals_of_a_terminal(control: Control) -> None:
    control.config("import time; time.sleep(600)")
    started = control.hear()
    assert started is not None
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        control.supervisor.send_signal(number)
    control.say(end=30)
    assert control.hear() == {"exited": signal.SIGTERM}
    assert control.hear() == {"gone": 0, "left": [], "reached": []}


def test_messages_in_pieces_and_several_at_once_are_understood(control: Control) -> None:
    control.config("import time; time.sleep(600)")
    assert control.hear() is not None
    control.sock.sendall(b'{"end"')
    control.sock.sendall(b': 0}\n{"end": 3600}\n')
    assert control.hear() == {"exited": signal.SIGKILL}


def test_sigterm_is_sent_once_however_often_the_end_is_asked_for(control: Control) -> None:
    # a second one would interrupt what the first has set off
    code = """
import os, signal, time
seen = []
def on_term(*_):
    if seen:
        os._exit(42)
    seen.append(1)
    os.write(1, b'T')
signal.signal(signal.SIGTERM, on_term)
os.write(1, b'R')
while True:
    time.sleep(600)
"""
    control.config(code)
    assert control.written() == b"R"
    control.say(end=3600)
    assert control.written() == b"T"
    control.say(end=0.2)
    assert control.hear() is not None
    assert control.hear() == {"exited": signal.SIGKILL}


def test_descendants_are_found_across_sessions_and_zombies_are_not_counted() -> None:
    code = """
import os, time
if os.fork() == 0:
    os.setsid()
    os.write(1, b'%d\\n' % os.getpid())
    time.sleep(600)
if os.fork() == 0:
    os._exit(0)
os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
os.write(1, b'ready\\n')
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        lines = {process.stdout.readline(), process.stdout.readline()}
        child = int((lines - {b"ready\n"}).pop())
        try:
            assert descendants(process.pid) == [child]
            assert process.pid in descendants(os.getpid())
        finally:
            process.kill()
            os.kill(child, signal.SIGKILL)
