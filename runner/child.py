"""The caller's side of one worker: starting it, talking to it, its deadlines, and its end.

Comes in: a `Launch` (everything a worker is made of) and calls. Goes out: results of the calls. Whatever the worker
does, every call is answered: by what it says, or by what its death means for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shutil
import signal
import socket
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from runner.broker import Broker
from runner.calls import Death, remote_error
from runner.channel import Channel
from runner.conversation import Conversation
from runner.environ import worker_environment
from runner.errors import FrameError, RunnerError, WorkerLostError, WorkerStartError
from runner.limits import MAX_FRAME_BYTES, MAX_LOADED_MESSAGES, TERM_GRACE_S, Limits
from runner.process import Exit, OutputTail, Process
from runner.protocol import (
    AUTH_FD,
    BUNDLE_FD,
    PROTOCOL,
    WORK_FD,
    AuthFromWorker,
    Close,
    Closed,
    FromWorker,
    Hello,
    Load,
    Loaded,
    Ready,
    StartFailed,
    ToWorker,
    auth_from_worker_decoder,
    from_worker_decoder,
)
from runner.record import LogLine
from runner.redaction import Redactor
from runner.sandbox.policy import SandboxPolicy

EOF_WAIT_S: Final = 1.0
"""How long what a dead worker had sent may take to be read; its tree is gone, so the end of stream is there."""

EXIT_WAIT_S: Final = 0.25
"""How long the exit of a worker whose channel has ended may take to be told, before it is killed for it."""


MAX_HEADER_REQUESTS: Final = 10_000
"""Header requests of one worker that may wait at once: more than it can have rollouts that ask for some."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Everything a worker is made of.

    Args:
        python: The venv's interpreter.
        boot: First file of the worker's code.
        pickled: The bundle's pickle, exactly the bytes that were digested.
        metadata: The bundle's metadata as JSON bytes.
        series: The Python series it must report.
        policy: How it is confined.
        limits: What it may use.
    """

    python: Path
    boot: Path
    pickled: bytes
    metadata: bytes
    series: str
    policy: SandboxPolicy
    limits: Limits


class Child:
    """One live worker. Create with `Child.start`; belongs to the event loop that created it."""

    def __init__(
        self,
        launch: Launch,
        broker: Broker,
        redactor: Redactor,
        on_output: Callable[[LogLine], None],
        on_ended: Callable[[tuple[str, ...]], None],
        on_death: Callable[[Child], None],
        on_loaded: Callable[[list[str]], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._launch = launch
        self._limits = launch.limits
        self._broker = broker
        self._redactor = redactor
        self._on_death = on_death
        self._on_loaded = on_loaded
        self._told_loaded = 0
        self._folder = Path(tempfile.mkdtemp(prefix="benchmax-worker-"))
        self._ready: asyncio.Future[Ready] = self._loop.create_future()
        self._stream_over = asyncio.Event()
        self._closed = asyncio.Event()
        self._close_failure: RunnerError | None = None
        self._lie: FrameError | None = None
        self._closing = False
        self._was_ready = False
        self._closed_by_caller = False
        self.conversation = Conversation(self._send, self._kill, launch.limits, redactor, on_output, on_ended)
        self._answers: set[asyncio.Task[None]] = set()
        self._watcher: asyncio.Task[None] | None = None
        self._work: Channel[FromWorker]
        self._auth: Channel[AuthFromWorker]
        self._process: Process
        self._phase = "starting"
        self.stdout = OutputTail(launch.limits.output_bytes)
        self.stderr = OutputTail(launch.limits.output_bytes)
        self.hello: Hello | None = None
        self.death: str | None = None
        """How it ended, in one line; `None` while it lives."""

    @classmethod
    async def start(
        cls,
        launch: Launch,
        broker: Broker,
        redactor: Redactor,
        *,
        on_output: Callable[[LogLine], None],
        on_ended: Callable[[tuple[str, ...]], None],
        on_death: Callable[[Child], None],
        on_loaded: Callable[[list[str]], None],
    ) -> Child:
        """Start a worker and wait until its environment is constructed.

        Args:
            launch: What it is made of.
            broker: Answers its header requests.
            redactor: Cleans every text it sends.
            on_output: Told what is logged or printed outside of rollouts.
            on_ended: Told which rollouts have run.
            on_death: Told, once, when it ends without having been asked to after it was ready.
            on_loaded: Told, once or twice, which modules it loaded from source; the paths are what the worker says.

        Raises:
            RemoteError: loading the bundle or constructing the environment raised.
            WorkerStartError: the worker ended or ran out of time before that.
        """
        child = cls(launch, broker, redactor, on_output, on_ended, on_death, on_loaded)
        try:
            await child._start()
            child._was_ready = True
        except BaseException:
            await child.end(grace_s=0)
            raise
        return child

    @property
    def alive(self) -> bool:
        """Whether it can still be given calls."""
        over = self.death or self._closing or self._lie or self._stream_over.is_set()
        return not (over or self.conversation.deadline_of)

    @property
    def pid(self) -> int:
        """Its process id on this host."""
        return self._process.pid

    @property
    def load(self) -> int:
        """Rollouts in flight."""
        return self.conversation.load

    @property
    def ready(self) -> Ready:
        """What the environment said about itself."""
        return self._ready.result()

    # -- start --------------------------------------------------------------------------------------------

    async def _start(self) -> None:
        for name in ("home", "tmp", "work"):
            (self._folder / name).mkdir()
        work, work_theirs = socket.socketpair()
        auth, auth_theirs = socket.socketpair()
        bundle = _sealed(self._launch.pickled)
        try:
            self._process = await Process.start(
                [str(self._launch.python), "-s", "-P", "-X", "utf8", str(self._launch.boot)],
                env=worker_environment(self._folder, self._launch.python),
                cwd=self._folder / "work",
                policy=self._launch.policy,
                descriptors={WORK_FD: work_theirs.fileno(), AUTH_FD: auth_theirs.fileno(), BUNDLE_FD: bundle},
                stdout=self.stdout.write,
                stderr=self.stderr.write,
                remove=self._folder,
            )
        except BaseException:
            work.close()
            auth.close()
            raise
        finally:
            work_theirs.close()
            auth_theirs.close()
            os.close(bundle)
        try:
            self._work = await Channel.open(work, from_worker_decoder(), self._on_message, self._on_stream_end)
            self._auth = await Channel.open(
                auth, auth_from_worker_decoder(), self._on_header_request, self._on_auth_end
            )
        except BaseException:
            work.close()
            auth.close()
            raise
        self._watcher = self._loop.create_task(self._watch(), name="benchmax-watch-worker")
        scope = self._broker.scope()
        self.conversation.open_scope(scope)
        self._send(
            Load(
                protocol=PROTOCOL,
                metadata=self._launch.metadata,
                bindings=scope.names(),
                rollout_log_bytes=self._limits.rollout_log_bytes,
                transcript_bytes=self._limits.transcript_bytes,
            )
        )
        try:
            async with asyncio.timeout(self._limits.startup_s):
                await asyncio.shield(self._ready)
        except TimeoutError:
            raise WorkerStartError(
                f"the worker was not ready after {self._limits.startup_s:g} s ({self._phase}).{self._last_words()}",
                hint="Raise limits.startup_s if its imports or constructor take that long.",
            ) from None
        finally:
            self.conversation.close_scope()

    def _send(self, message: ToWorker) -> None:
        if self.death is not None:
            raise WorkerLostError(f"the worker is no longer there. {self.death}")
        self._work.send(message)

    def _kill(self) -> None:
        self._process.kill()

    # -- what the worker says -----------------------------------------------------------------------------

    def _on_message(self, message: FromWorker) -> None:
        match message:
            case Hello():
                self._on_hello(message)
            case Ready():
                if self.hello is None or self._ready.done():
                    raise FrameError("a ready message out of turn")
                self._ready.set_result(message)
            case StartFailed():
                if self.hello is None or self._ready.done():
                    raise FrameError("a start-failed message out of turn")
                what = {"load": "loading the bundle", "construct": "constructing the environment"}.get(message.phase)
                error = remote_error(message.failure, what or "describing the environment", self._redactor)
                self._fail_start(error)
            case Loaded():
                if not self._ready.done() or self._told_loaded >= MAX_LOADED_MESSAGES:
                    raise FrameError("a loaded message out of turn")
                self._told_loaded += 1
                self._on_loaded(message.modules)
            case Closed():
                if not self._closing or self._closed.is_set():
                    raise FrameError("a closed message out of turn")
                if message.failure is not None:
                    self._close_failure = remote_error(message.failure, "aclose", self._redactor)
                self._closed.set()
            case _:
                self.conversation.on_message(message)

    def _on_hello(self, hello: Hello) -> None:
        if self.hello is not None:
            raise FrameError("a second hello")
        if hello.protocol != PROTOCOL or hello.python != self._launch.series:
            raise FrameError(
                f"the worker speaks protocol {hello.protocol} on Python {hello.python}, "
                f"expected protocol {PROTOCOL} on Python {self._launch.series}"
            )
        self.hello = hello
        self._phase = "loading the bundle and constructing the environment"

    def _on_header_request(self, request: AuthFromWorker) -> None:
        if len(self._answers) >= MAX_HEADER_REQUESTS or self._auth.unsent() > MAX_FRAME_BYTES:
            raise FrameError(f"more than {MAX_HEADER_REQUESTS} header requests at once, or answers are not read")
        task = self._loop.create_task(self._answer(request), name="benchmax-headers")
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)

    async def _answer(self, request: AuthFromWorker) -> None:
        self._auth.send(await self._broker.answer(request, self.conversation.scopes))

    def _on_stream_end(self, error: FrameError | None) -> None:
        self._stream_over.set()
        if error is not None:
            self._lie = error
            self._process.kill()
        elif not self._closing:
            # most likely it has just died and its exit is about to be told; if not, it is of no use any more
            self._loop.call_later(EXIT_WAIT_S, self._process.kill)

    def _on_auth_end(self, error: FrameError | None) -> None:
        if error is not None:
            self._lie = error
            self._process.kill()

    # -- end ----------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Close the environment and end the worker; never takes longer than the limits say.

        Raises:
            RemoteError: the environment's `aclose` raised; the worker is gone all the same.
        """
        self._closing = self._closed_by_caller = True
        self.conversation.closing()
        if self.death is None and self._lie is None:
            self._send(Close())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._limits.shutdown_s):
                    await self._either(self._closed.wait(), self._process.exited())
        await self.end()
        if self._close_failure is not None:
            raise self._close_failure

    async def end(self, grace_s: float = TERM_GRACE_S) -> None:
        """End the worker's process tree and remove its folder. Safe to call twice."""
        self._closing = True
        if hasattr(self, "_process"):
            if self._closed.is_set():
                # it leaves by itself right after its last message
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(grace_s):
                        await self._process.exited()
            await self._process.end(grace_s)
        if self._watcher is not None:
            await asyncio.shield(self._watcher)
        for task in [*self._answers]:
            task.cancel()
        for name in ("_work", "_auth"):
            if hasattr(self, name):
                getattr(self, name).close()
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    async def _either(self, *waits: Any) -> None:
        tasks = [asyncio.ensure_future(wait) for wait in waits]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()

    async def _watch(self) -> None:
        """Wait for the worker's death, let what it had sent arrive, then settle everything that is open."""
        how = await self._process.wait()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(EOF_WAIT_S):
                await self._stream_over.wait()
        self.death = self._describe(how)
        if not self._ready.done():
            self._fail_start(WorkerStartError(f"{self.death}{self._last_words()}"))
        if self._was_ready and not self._closed_by_caller:
            self._on_death(self)
        self.conversation.died(Death(f"{self.death}{self._last_words()}", self.conversation.deadline_of))

    def _describe(self, how: Exit) -> str:
        if self._lie is not None:
            return f"The worker broke the protocol and was killed: {self._redactor.clean(self._lie.message)}"
        if self.conversation.deadline_of is not None:
            return f"The worker was killed {self._limits.cancel_grace_s:g} s after it was asked to stop."
        busy = self.load
        doing = f"with {busy} rollout{'s' if busy != 1 else ''} in flight" if busy else f"while {self._phase}"
        if self._ready.done() and not busy:
            doing = "with no rollout in flight"
        text = f"The worker ended by {how} {doing}."
        if how.signal == signal.SIGKILL and not how.escalated:
            text += " It may be out of memory, or something else killed it."
        if how.signal in (signal.SIGSEGV, signal.SIGILL, signal.SIGBUS, signal.SIGABRT):
            text += " A compiled package can do that, or a bundle made by another Python than its metadata says."
        return text

    def _last_words(self) -> str:
        lines = self.stderr.last_lines(3) or self.stdout.last_lines(3)
        return f" Last output: {' | '.join(self._redactor.clean(line) for line in lines)}" if lines else ""

    def _fail_start(self, error: Exception) -> None:
        if not self._ready.done():
            self._ready.set_exception(error)
            self._ready.exception()


def _sealed(data: bytes) -> int:
    """Put bytes into a memory file that nobody can change any more; return its descriptor."""
    descriptor = os.memfd_create("bundle", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        seals = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
