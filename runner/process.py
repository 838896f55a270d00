"""A supervised process tree seen from the caller: start, captured output, exit, and the one way to end it.

Comes in: a command with its whole environment, a sandbox policy and descriptors to hand over. Goes out: an `Exit`
that says how it ended. Every tree has its own supervisor process, which also ends the tree when this process goes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Any, Final

from runner.errors import RunnerError, SandboxUnavailableError
from runner.limits import REAP_S, TERM_GRACE_S
from runner.sandbox.bubblewrap import LISTENERS_FD, STATUS_FD
from runner.sandbox.fitting import closed_to
from runner.sandbox.machine import this_machine
from runner.sandbox.plan import compile_plan
from runner.sandbox.policy import SandboxPolicy

SUPERVISOR: Final = Path(__file__).parent / "sandbox" / "supervise.py"
ORPHAN_S: Final = 1.0
"""How long a killed process without a supervisor may take to be collected."""

READ_BYTES: Final = 256 * 1024
"""One read of a captured stream; a pipe holds 64 KiB unless enlarged."""

OutputSink = Callable[[bytes], None]


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended.

    Args:
        code: Exit code, or `None` when a signal ended it.
        signal: Signal number, or `None` when it exited by itself.
        escalated: It was asked to end and had to be killed.
        lost: Its supervisor was killed, so nothing certain is known.
        left: Processes of its tree that were killed and are still there: they hang in the kernel.
        reached: Limits on the whole tree that it has met, by their names in `Limits`.
        refused: The sandbox could not be made, and the command was never there; its output says why.
    """

    code: int | None = None
    signal: int | None = None
    escalated: bool = False
    lost: bool = False
    left: tuple[int, ...] = ()
    reached: tuple[str, ...] = ()
    refused: bool = False

    @property
    def ok(self) -> bool:
        """Whether it exited by itself with code 0."""
        return self.code == 0

    def __str__(self) -> str:
        if self.lost:
            return "an unknown end (its supervisor was killed)"
        if self.signal is not None:
            try:
                name = signal.Signals(self.signal).name
            except ValueError:
                name = "signal"
            return f"{name} (-{self.signal})"
        return f"exit code {self.code}"


class OutputTail:
    """Keeps the beginning and the end of a stream, each up to half of a limit, and counts what fell out between."""

    def __init__(self, limit: int) -> None:
        self._half = max(1, limit // 2)
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0

    def write(self, data: bytes) -> None:
        """Take in the next bytes of the stream."""
        self.total += len(data)
        room = self._half - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if data:
            self._tail += data[-self._half :]
            # trimming at twice the size keeps the cost per byte constant
            if len(self._tail) > 2 * self._half:
                del self._tail[: -self._half]

    @property
    def dropped(self) -> int:
        """Bytes that are no longer kept."""
        return self.total - len(self._head) - min(len(self._tail), self._half)

    def text(self) -> str:
        """Return what is kept, with a line that says how much is missing between."""
        head = self._head.decode("utf-8", "replace")
        tail = self._tail[-self._half :].decode("utf-8", "replace")
        return f"{head}\n… {self.dropped} bytes left out …\n{tail}" if self.dropped else head + tail

    def last_lines(self, count: int = 5) -> list[str]:
        """Return the last non-empty lines of the stream."""
        kept = (self._tail or self._head)[-8192:].decode("utf-8", "replace")
        return [line.rstrip() for line in kept.splitlines() if line.strip()][-count:]


class Process:
    """A running process tree. Create with `Process.start`; belongs to the event loop that created it."""

    def __init__(self, supervisor: subprocess.Popen[bytes], control: socket.socket, outputs: list[IO[bytes]]) -> None:
        self._loop = asyncio.get_running_loop()
        self._supervisor = supervisor
        self._control = control
        self._outputs = outputs
        self._pending = b""
        self._started: asyncio.Future[int] = self._loop.create_future()
        self._exited: asyncio.Future[Exit] = self._loop.create_future()
        self._gone: asyncio.Future[None] = self._loop.create_future()
        self._drained: list[asyncio.Future[None]] = []
        self._patience: asyncio.TimerHandle | None = None
        self._asked = False
        self._left: tuple[int, ...] = ()
        self._reached: tuple[str, ...] = ()
        self.pid = 0

    @classmethod
    async def start(
        cls,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path,
        policy: SandboxPolicy,
        descriptors: Mapping[int, int] | None = None,
        stdout: OutputSink | None = None,
        stderr: OutputSink | None = None,
        remove: Path | None = None,
    ) -> Process:
        """Start a command under its own supervisor.

        Args:
            argv: The command; the first word is an absolute path.
            env: Its whole environment; nothing of the caller's is added.
            cwd: Its working directory.
            policy: How it is confined.
            descriptors: Number in the process → descriptor here to hand over. Standard input is always empty.
            stdout: Called with each piece of standard output; `None` discards it.
            stderr: The same for standard error.
            remove: A folder that is removed once the whole tree is gone, also when this process is killed before.

        Raises:
            RunnerError: the command could not be executed; the text says why.
            SandboxUnavailableError: the machine lacks what the policy's level is made of, or a step of it failed.
        """
        given = dict(descriptors or {})
        plan = compile_plan(
            policy,
            this_machine(),
            argv,
            cwd=str(cwd),
            closed=closed_to(policy),
            status=STATUS_FD,
            listeners=LISTENERS_FD if LISTENERS_FD in given else None,
        )
        # whatever can be wrong with the arguments is found before anything is open
        config = {
            "argv": plan.argv,
            "steps": plan.steps,
            "relayed": plan.relayed,
            "status": STATUS_FD,
            "env": dict(env),
            "cwd": str(cwd),
            "umask": policy.umask,
            "groups": [asdict(group) for group in policy.groups],
            "disk": {"folders": policy.watched, "max_bytes": policy.disk_bytes} if policy.watched else None,
            "caller": os.getpid(),
            "remove": None if remove is None else str(remove),
            # so that what it has to say comes before it is given up
            "give_up": REAP_S / 2,
        }
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        outputs: list[tuple[IO[bytes], OutputSink]] = []
        handed: list[int] = []
        try:
            for number, sink in ((1, stdout), (2, stderr)):
                if sink is None:
                    write = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
                else:
                    read, write = os.pipe2(os.O_CLOEXEC)
                    os.set_blocking(read, False)
                    outputs.append((os.fdopen(read, "rb", buffering=0), sink))
                handed.append(write)
                given[number] = write
            line = json.dumps({**config, "fds": given}).encode() + b"\n"
            # blocks for about a millisecond; asyncio's own subprocesses need a child watcher, hence a certain thread
            supervisor = subprocess.Popen(  # noqa: ASYNC220
                [sys.executable, "-I", "-S", str(SUPERVISOR), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno(), *given.values()],
                start_new_session=True,
                env={},
                cwd="/",
            )
        except BaseException:
            ours.close()
            for stream, _ in outputs:
                stream.close()
            raise
        finally:
            theirs.close()
            for descriptor in handed:
                os.close(descriptor)
        process = cls(supervisor, ours, [stream for stream, _ in outputs])
        try:
            for stream, sink in outputs:
                process._drain(stream, sink)
            process._loop.add_reader(ours.fileno(), process._on_control)
            await process._loop.sock_sendall(ours, line)
            process.pid = await asyncio.shield(process._started)
        except BaseException:
            # not by a message: the one before may have gone only in part
            with contextlib.suppress(OSError):
                ours.shutdown(socket.SHUT_WR)
            await process.end(0)
            raise
        return process

    @property
    def running(self) -> bool:
        """Whether the process itself (not its whole tree) is still there, as far as is known."""
        return not self._exited.done()

    @property
    def stopped(self) -> bool:
        """Whether a signal has stopped the process, so that it does nothing until it is told to go on."""
        try:
            stat = Path(f"/proc/{self.pid}/stat").read_text()
        except OSError:
            return False
        return self.running and stat.rpartition(")")[2].split()[0] in "Tt"

    async def wait(self) -> Exit:
        """Wait until the process and all of its tree are gone and its output is read; return how it ended."""
        await asyncio.shield(self._gone)
        await self._finish()
        return replace(self._exited.result(), left=self._left, reached=self._reached)

    async def exited(self) -> Exit:
        """Wait until the process itself has ended; its tree may still be there, its output still be coming."""
        return await asyncio.shield(self._exited)

    async def end(self, grace_s: float = TERM_GRACE_S) -> Exit:
        """End the tree: SIGTERM, after `grace_s` seconds SIGKILL (at once when 0); return how it ended.

        Safe to call twice, from several tasks, and after the end. Once begun it completes even if cancelled.
        """
        return await asyncio.shield(asyncio.ensure_future(self._end(grace_s)))

    def signal(self, number: int) -> None:
        """Send a signal to the process itself, not to its tree; does nothing once it has ended."""
        self._tell({"signal": number})

    def abandon(self) -> None:
        """End the tree without an event loop, when the one that this belongs to is closed; returns when it is gone."""
        self._control.close()
        for stream in self._outputs:
            stream.close()
        try:
            self._supervisor.wait(REAP_S)
        except subprocess.TimeoutExpired:
            self._supervisor.kill()
            self._supervisor.wait()

    def kill(self) -> None:
        """Kill the tree at once without waiting; `wait` tells when it is gone."""
        self._ask(0.0)
        if self._patience is None and not self._gone.done():
            # a process of the same user can stop its supervisor; nobody may wait for that for ever
            self._patience = self._loop.call_later(REAP_S, self._give_up)

    async def _end(self, grace_s: float) -> Exit:
        self._ask(grace_s)
        try:
            async with asyncio.timeout(grace_s + REAP_S):
                return await self.wait()
        except TimeoutError:
            self._give_up()
            return await self.wait()

    def _give_up(self) -> None:
        """The supervisor itself hangs or was stopped: do without it."""
        if not self._gone.done():
            self._supervisor.kill()
            self._on_lost()

    def _ask(self, grace_s: float) -> None:
        if self._gone.done():
            return
        if self._asked and self._exited.done():
            return
        self._asked = True
        self._tell({"end": grace_s})

    def _tell(self, message: dict[str, float]) -> None:
        if self._gone.done():
            return
        # a supervisor that has ended may have said before how the tree did, and that is still to be read
        with contextlib.suppress(OSError):
            self._control.send(json.dumps(message).encode() + b"\n")

    def _drain(self, stream: IO[bytes], sink: OutputSink) -> None:
        done: asyncio.Future[None] = self._loop.create_future()
        self._drained.append(done)

        def on_readable() -> None:
            try:
                data = os.read(stream.fileno(), READ_BYTES)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if data:
                sink(data)
                return
            self._loop.remove_reader(stream.fileno())
            if not done.done():
                done.set_result(None)

        self._loop.add_reader(stream.fileno(), on_readable)

    def _on_control(self) -> None:
        try:
            data = self._control.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._on_lost()
            return
        self._pending += data
        while b"\n" in self._pending:
            line, self._pending = self._pending.split(b"\n", 1)
            self._on_message(json.loads(line))

    def _on_message(self, message: dict[str, Any]) -> None:
        if "started" in message:
            self._started.set_result(int(message["started"]))
        elif "failed" in message:
            if message.get("refused"):
                self._started.set_exception(
                    SandboxUnavailableError(
                        f"the sandbox could not be made: {message['failed']}.",
                        hint="`benchmax doctor` says what works here.",
                    )
                )
            else:
                self._started.set_exception(RunnerError(f"cannot execute the command: {message['failed']}."))
            # whoever was cancelled while it started never looks
            self._started.exception()
            self._settle(Exit(code=127))
            self._set_gone()
        elif "exited" in message:
            code = os.waitstatus_to_exitcode(int(message["exited"]))
            killed = self._asked and code == -signal.SIGKILL
            refused = bool(message.get("refused"))
            self._settle(
                Exit(code=code, escalated=killed, refused=refused)
                if code >= 0
                else Exit(signal=-code, escalated=killed)
            )
        elif "gone" in message:
            # the child may have been killed in the last sweep, in which case its own end was never told
            self._settle(Exit(signal=signal.SIGKILL, escalated=True))
            self._left, self._reached = tuple(message["left"]), tuple(message["reached"])
            self._set_gone()

    def _on_lost(self) -> None:
        """The supervisor is gone without having said that the tree is."""
        if self._gone.done():
            return
        if self.pid:
            # it led a session of its own, so this reaches all of it that did not detach itself on purpose
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        if not self._started.done():
            self._started.set_exception(RunnerError("the supervisor ended before it had started the command."))
            self._started.exception()
        self._settle(Exit(lost=True))
        self._set_gone()

    def _settle(self, how: Exit) -> None:
        if not self._exited.done():
            self._exited.set_result(how)

    def _set_gone(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
        if not self._gone.done():
            self._loop.remove_reader(self._control.fileno())
            self._gone.set_result(None)

    async def _finish(self) -> None:
        """Read what is left of the output, reap the supervisor, close what is ours. Idempotent."""
        if self._drained:
            # whoever held the other ends is gone; only a process that escaped could keep them open
            await asyncio.wait(self._drained, timeout=1.0)
        for stream in self._outputs:
            if not stream.closed:
                self._loop.remove_reader(stream.fileno())
                stream.close()
        self._control.close()
        if self._supervisor.returncode is None:
            try:
                await asyncio.to_thread(self._supervisor.wait, REAP_S)
            except subprocess.TimeoutExpired:
                self._supervisor.kill()
                await asyncio.to_thread(self._supervisor.wait)
        if self._exited.result().lost and self.pid:
            # only now that its supervisor is gone it may be our child
            await asyncio.to_thread(_collect, self.pid)


def _collect(pid: int) -> None:
    """Collect a killed process that lost its supervisor, if it is our child now: we are process 1 or a subreaper."""
    deadline = time.monotonic() + ORPHAN_S
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(pid, os.WNOHANG) == (0, 0) and time.monotonic() < deadline:
            time.sleep(0.005)
