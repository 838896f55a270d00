"""Process trees with real processes: what they start with, what is kept of them, and that nothing of them is left."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner import process as process_module
from runner.errors import RunnerError, SandboxUnavailableError
from runner.process import Exit, OutputTail, Process
from runner.sandbox.machine import this_machine
from runner.sandbox.policy import SandboxPolicy
from tests.unit.process_lab import POLICY, Output, exists, gone_soon, running, start


@pytest.fixture
async def output() -> Output:
    return Output()


# -- how it ended ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "how", "text"),
    [
        ("pass", Exit(code=0), "exit code 0"),
        ("raise SystemExit(3)", Exit(code=3), "exit code 3"),
        ("import os; os._exit(255)", Exit(code=255), "exit code 255"),
        ("1/0", Exit(code=1), "exit code 1"),
        ("import os; os.abort()", Exit(signal=signal.SIGABRT), "SIGABRT (-6)"),
        ("import os, signal; os.kill(os.getpid(), 11)", Exit(signal=signal.SIGSEGV), "SIGSEGV (-11)"),
        ("import os, signal; os.kill(os.getpid(), 9)", Exit(signal=signal.SIGKILL), "SIGKILL (-9)"),
        ("import os, signal; os.kill(os.getpid(), 35)", Exit(signal=35), "signal (-35)"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_the_end_of_a_process_is_told_by_code_or_signal_name(code: str, how: Exit, text: str) -> None:
    process = await start(code)
    assert await process.wait() == how
    assert str(how) == text
    assert how.ok == (how.code == 0)
    assert not process.running


async def test_an_end_that_nobody_saw_says_so() -> None:
    assert str(Exit(lost=True)) == "an unknown end (its supervisor was killed)"
    assert not Exit(lost=True).ok


async def test_waiting_twice_and_ending_afterwards_give_the_same() -> None:
    process = await start("raise SystemExit(7)")
    assert await process.exited() == Exit(code=7)
    assert await process.wait() == await process.wait() == await process.end() == await process.end(0) == Exit(code=7)


async def test_a_process_that_ended_while_the_loop_was_busy_is_not_lost() -> None:
    process = await start("raise SystemExit(5)")
    supervisor = process._supervisor.pid
    # the loop reads nothing meanwhile, so what the supervisor said is still to be read when it is asked to end
    assert gone_soon(process.pid, supervisor)
    assert await process.end() == Exit(code=5)


async def test_a_process_in_a_loop_of_another_thread() -> None:
    results: list[Exit] = []

    async def run(output: Output) -> None:
        process = await start("import os; os.write(1, b'hello'); os._exit(4)", output)
        results.append(await process.wait())
        assert output.data == b"hello"

    async def main() -> None:
        await run(Output())

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    await asyncio.to_thread(thread.join)
    assert results == [Exit(code=4)]


async def test_a_thread_that_blocks_every_signal_can_start_processes_too() -> None:
    results: list[Exit] = []

    async def main() -> None:
        output = Output()
        async with running("import time; print('ready', flush=True); time.sleep(60)", output) as process:
            await output.wait_for(b"ready")
            results.append(await process.end(30))

    def blocked() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        asyncio.run(main())

    thread = threading.Thread(target=blocked)
    thread.start()
    await asyncio.to_thread(thread.join)
    # the tree would never hear SIGTERM, nor its supervisor of a child's end, with the mask of that thread
    assert results == [Exit(signal=signal.SIGTERM)]


# -- what cannot be started -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "cwd", "text"),
    [
        (["/no/such/program"], "/", "No such file or directory: '/no/such/program'"),
        (["/proc/version"], "/", "Permission denied: '/proc/version'"),
        (["/bin/true"], "/no/such/folder", "No such file or directory: '/no/such/folder'"),
        (["/no/such/\udcff"], "/", "No such file or directory"),
        (["/bin/true", "x" * 10_000_000], "/", "Argument list too long"),
    ],
    ids=["missing program", "not executable", "missing folder", "name that is not text", "too long"],
)
async def test_what_cannot_be_executed_is_one_error_that_names_it(argv: list[str], cwd: str, text: str) -> None:
    with pytest.raises(RunnerError, match=r"^cannot execute the command: ") as caught:
        await Process.start(argv, env={}, cwd=Path(cwd), policy=POLICY, stdout=Output().write)
    assert text in str(caught.value)


async def test_a_level_that_this_machine_lacks_is_refused_before_anything_is_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = replace(this_machine(), landlock=0)
    monkeypatch.setattr("runner.process.this_machine", lambda: machine)
    with pytest.raises(SandboxUnavailableError, match="this kernel offers no Landlock"):
        await Process.start(["/bin/true"], env={}, cwd=Path("/"), policy=SandboxPolicy(level="landlock"))


async def test_arguments_that_are_no_text_are_refused_before_anything_is_started() -> None:
    with pytest.raises(TypeError):
        await Process.start([b"/bin/true"], env={}, cwd=Path("/"), policy=POLICY)  # type: ignore[list-item]  # the point


@pytest.mark.parametrize("turns", range(6))
async def test_a_start_that_is_cancelled_leaves_nothing(turns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # the leak guard of the test run looks for what is left; nothing here may need the last resort
    monkeypatch.setattr(process_module, "REAP_S", 3600.0)
    task = asyncio.ensure_future(start("import time; time.sleep(60)", Output(), env={"BIG": "x" * 300_000}))
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


# -- what it starts with --------------------------------------------------------------------------------------


async def test_the_environment_is_exactly_what_was_given(output: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THE_CALLER", "x")
    given = {"A": "1", "EMPTY": "", "NOT_ASCII": "é", "NOT_TEXT": os.fsdecode(b"\xff\xfe")}
    async with running("import os; os.write(1, open('/proc/self/environ', 'rb').read())", output, env=given) as process:
        await process.wait()
    pairs = [item.partition(b"=") for item in output.data.split(b"\0") if item]
    assert {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs} == given


async def test_only_the_given_descriptors_are_open(output: Output) -> None:
    one, other = socket.socketpair()
    read, write = os.pipe()
    os.set_inheritable(read, True)
    code = """
import os
print({int(n): os.readlink(f'/proc/self/fd/{n}').partition(':')[0] for n in ('0','1','2','3','9')})
import resource
closed = [n for n in range(resource.getrlimit(resource.RLIMIT_NOFILE)[0]) if n not in (0, 1, 2, 3, 9)]
def is_open(n):
    try:
        os.fstat(n)
    except OSError:
        return False
    return True
print([n for n in closed if is_open(n)])
"""
    try:
        async with running(code, output, descriptors={3: one.fileno(), 9: write}) as process:
            assert (await process.wait()).ok, output.data
    finally:
        for descriptor in (read, write):
            os.close(descriptor)
        one.close()
        other.close()
    assert output.lines() == ["{0: '/dev/null', 1: 'pipe', 2: 'pipe', 3: 'socket', 9: 'pipe'}", "[]"]


async def test_descriptors_may_trade_places(output: Output) -> None:
    with contextlib.ExitStack() as stack:
        pipes = [os.pipe() for _ in range(3)]
        for descriptor in [number for pair in pipes for number in pair]:
            stack.callback(os.close, descriptor)
        readers = [read for read, _ in pipes]
        for index, (_, write) in enumerate(pipes):
            os.write(write, b"%d" % index)
        # each is handed over under the number that another one has here
        given = {readers[0]: readers[1], readers[1]: readers[2], readers[2]: readers[0]}
        code = f"import os; print([os.read(n, 1) for n in {readers}])"
        async with running(code, output, descriptors=given) as process:
            assert (await process.wait()).ok, output.data
    assert output.lines() == ["[b'1', b'2', b'0']"]


async def test_a_descriptor_with_a_number_just_below_the_limit_can_be_handed_over(output: Output) -> None:
    read, write = os.pipe()
    high = os.dup2(read, process_limit() - 20)
    try:
        os.write(write, b"here")
        async with running("import os; os.write(1, os.read(3, 10))", output, descriptors={3: high}) as process:
            assert (await process.wait()).ok, output.data
    finally:
        for descriptor in (read, write, high):
            os.close(descriptor)
    assert output.data == b"here"


def process_limit() -> int:
    import resource

    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


async def test_a_descriptor_handed_over_is_held_by_the_process_alone(output: Output) -> None:
    one, other = socket.socketpair()
    other.setblocking(False)
    async with running(
        "import os, time; os.close(3); time.sleep(600)",
        output,
        descriptors={3: one.fileno()},
    ):
        one.close()
        with other:
            # neither this process nor the supervisor keeps the other end of it
            assert await asyncio.get_running_loop().sock_recv(other, 1) == b""


STATE = """
import os, resource, signal
status = dict(line.split(':\\t', 1) for line in open('/proc/self/status').read().splitlines() if ':\\t' in line)
print('leads its session', os.getsid(0) == os.getpid() == os.getpgid(0))
print('no new privileges', status['NoNewPrivs'])
print('core', resource.getrlimit(resource.RLIMIT_CORE))
print('umask', status['Umask'])
print('blocked', int(status['SigBlk'], 16))
print('ignored', sorted(n for n in range(1, 32) if int(status['SigIgn'], 16) >> (n - 1) & 1))
print('stdin', repr(os.read(0, 10)))
print('cwd', os.getcwd())
"""


async def test_the_state_a_process_starts_in(output: Output, tmp_path: Path) -> None:
    async with running(STATE, output, cwd=tmp_path) as process:
        assert (await process.wait()).ok, output.data
    assert output.lines() == [
        "leads its session True",
        "no new privileges 1",
        "core (1, 1)",
        "umask 0077",
        "blocked 0",
        # python ignores these two itself
        f"ignored [{signal.SIGPIPE:d}, {signal.SIGXFSZ:d}]",
        "stdin b''",
        f"cwd {tmp_path}",
    ]


async def test_a_policy_without_limits_sets_none(output: Output) -> None:
    policy = SandboxPolicy(rlimits=(), no_new_privileges=False)
    async with running(STATE, output, policy=policy) as process:
        await process.wait()
    assert "no new privileges 0" in output.lines()


async def test_a_resource_limit_of_the_policy_holds(output: Output) -> None:
    policy = SandboxPolicy(rlimits=(("FSIZE", 1000, 1000),))
    code = "import os, tempfile; f = tempfile.TemporaryFile(); print(os.write(f.fileno(), bytes(5000)))"
    async with running(code, output, policy=policy) as process:
        await process.wait()
    assert output.lines() == ["1000"]


# -- output ---------------------------------------------------------------------------------------------------


async def test_a_flood_is_drained_and_its_beginning_and_end_are_kept() -> None:
    tail = OutputTail(1000)
    code = "import sys; sys.stdout.write('BEGIN' + 'x' * 10_000_000 + 'END')"
    process = await Process.start(
        [sys.executable, "-I", "-c", code], env={}, cwd=Path("/"), policy=POLICY, stdout=tail.write
    )
    assert (await process.wait()).ok
    assert tail.total == 10_000_008
    assert tail.dropped == tail.total - 1000
    text = tail.text()
    assert text.startswith("BEGINxxx")
    assert text.endswith("xxxEND")
    assert f"\n… {tail.dropped} bytes left out …\n" in text
    assert len(text) < 1100


@pytest.mark.parametrize("size", [1, 7, 499, 501, 1000, 4096])
def test_what_is_kept_does_not_depend_on_the_pieces(size: int) -> None:
    data = bytes(range(256)) * 40
    tail, whole = OutputTail(1000), OutputTail(1000)
    whole.write(data)
    for begin in range(0, len(data), size):
        tail.write(data[begin : begin + size])
    assert tail.text() == whole.text()
    assert tail.dropped == whole.dropped == len(data) - 1000


def test_a_stream_within_the_limit_is_kept_whole() -> None:
    tail = OutputTail(1000)
    for _ in range(10):
        tail.write(b"x" * 99 + b"\n")
    assert tail.text() == ("x" * 99 + "\n") * 10
    assert tail.dropped == 0


def test_the_memory_of_a_kept_stream_is_bounded() -> None:
    tail = OutputTail(1000)
    for _ in range(1000):
        tail.write(bytes(997))
    assert len(tail._head) + len(tail._tail) <= 500 + 2 * 500 + 997


def test_the_last_lines_are_those_with_something_on_them() -> None:
    tail = OutputTail(1000)
    tail.write(b"one\n\ntwo  \r\n   \n\xff three")
    assert tail.last_lines(2) == ["two", "\ufffd three"]
    assert OutputTail(10).last_lines() == []


async def test_output_that_nobody_wants_does_not_stop_the_process() -> None:
    process = await start("import sys; sys.stdout.write('x' * 1_000_000); sys.stderr.write('x' * 1_000_000)")
    assert (await process.wait()).ok


async def test_everything_written_before_the_end_has_arrived_after_it(output: Output) -> None:
    async with running("import os; os.write(1, b'x' * 60_000); os.write(2, b'last'); os._exit(0)", output) as process:
        await process.wait()
        assert sorted(output.data) == sorted(b"x" * 60_000 + b"last")


async def test_a_grandchild_that_holds_the_output_does_not_hold_up_the_end(output: Output) -> None:
    code = """
import subprocess, sys
child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])
print(child.pid, flush=True)
"""
    process = await start(code, output)
    assert await process.wait() == Exit(code=0)
    assert not exists(int(output.data))


# -- nothing accumulates --------------------------------------------------------------------------------------


async def test_starting_and_ending_fifty_times_leaves_no_descriptor_and_no_process() -> None:
    def open_descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before: int | None = None
    for turn in range(50):
        output = Output()
        process = await start("import time; time.sleep(600)" if turn % 2 else "pass", output)
        await (process.end(0) if turn % 2 else process.wait())
        if before is None:
            before = open_descriptors()
    assert open_descriptors() == before
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    assert not [pid for pid in children if b"supervise.py" in Path(f"/proc/{pid}/cmdline").read_bytes()]


async def test_failing_to_start_fifty_times_leaves_no_descriptor() -> None:
    def attempt() -> Callable[[], Any]:
        return lambda: Process.start(["/no/such"], env={}, cwd=Path("/"), policy=POLICY, stdout=Output().write)

    counts = []
    for _ in range(20):
        with pytest.raises(RunnerError):
            await attempt()()
        counts.append(len(list(Path("/proc/self/fd").iterdir())))
    assert len(set(counts[1:])) == 1


async def test_nothing_secret_is_on_the_command_line_of_the_supervisor(output: Output) -> None:
    code = "print('ready', flush=True); import time; time.sleep(600)"
    async with running(code, output, env={"TOKEN": "very-secret"}) as process:
        await output.wait_for(b"ready")
        folder = Path(f"/proc/{process._supervisor.pid}")
        assert b"very-secret" not in (folder / "cmdline").read_bytes()
        assert b"very-secret" not in (folder / "environ").read_bytes()
        assert re.search(rb"supervise\.py\0\d+\0$", (folder / "cmdline").read_bytes())
