"""The caller's side of one worker: starting it, talking to it, its deadlines, and its end.

Comes in: a `Launch` (everything a worker is made of) and calls. Goes out: results of the calls. Whatever the worker
does, every call is answered: by what it says, or by what its death means for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from runner.auth_link import AuthLink
from runner.broker import Broker
from runner.calls import Death, remote_error
from runner.channel import Channel
from runner.conversation import Conversation
from runner.errors import (
    FrameError,
    RunnerError,
    WorkerEnd,
    WorkerLostError,
    WorkerStartError,
)
from runner.greeting import check_hello, load_message
from runner.inspection import Sighting
from runner.launch import Launch, Launched
from runner.limits import MAX_LOADED_MESSAGES, TERM_GRACE_S
from runner.obituary import Obituary
from runner.protocol import (
    DUMP_SIGNAL,
    Close,
    Closed,
    FromWorker,
    Hello,
    Loaded,
    Ready,
    StartFailed,
    ToWorker,
    from_worker_decoder,
)
from runner.record import Watcher
from runner.redaction import Redactor
from runner.sandbox import disk

EOF_WAIT_S: Final = 1.0
EOF_ROUNDS: Final = 30
"""How long a dead worker's stream, whose end is there, may give nothing, and how often that begins anew if it did."""

EXIT_WAIT_S: Final = 0.25
"""How long the exit of a worker whose channel has ended may take to be told, before it is killed for it."""


class State(enum.Enum):
    """Where a worker is in its life."""

    STARTING = enum.auto()
    READY = enum.auto()
    FAILING = enum.auto()
    """It lied, hangs, or has lost its channel: it takes no more calls and is being ended."""
    CLOSING = enum.auto()
    """The caller has asked it to close the environment and end."""
    DEAD = enum.auto()


class Child:
    """One live worker. Create with `Child.start`; belongs to the event loop that created it."""

    def __init__(
        self, launch: Launch, launched: Launched, broker: Broker, redactor: Redactor, watcher: Watcher
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._launch = launch
        self._limits = launch.limits
        self._broker = broker
        self._redactor = redactor
        self._tell = watcher
        self._launched = launched
        self._process = launched.process
        self.stdout, self.stderr = launched.stdout, launched.stderr
        self.data = launched.data
        self._state = State.STARTING
        self._ready: asyncio.Future[Ready] = self._loop.create_future()
        self._told_loaded = 0
        self._work_over = asyncio.Event()
        self._auth_over = asyncio.Event()
        self._closed: asyncio.Future[Closed] = self._loop.create_future()
        self._lie: FrameError | None = None
        self._obituary = Obituary(launched, launch.limits, redactor)
        self.conversation = Conversation(
            self._send, self._look, self._kill, launch.limits, redactor, watcher.output, watcher.ended
        )
        self._auth = AuthLink(
            launch,
            launched,
            broker,
            redactor,
            self.conversation,
            signal=self._signal,
            on_stall=watcher.stalled,
            on_end=self._on_auth_end,
        )
        self._looks: set[asyncio.Task[None]] = set()
        self._work: Channel[FromWorker] | None = None
        self._watching = self._loop.create_task(self._watch(), name="benchmax-watch-worker")
        self.hello: Hello | None = None
        self.death: str | None = None
        """How it ended, in one line; `None` while it lives."""

    @classmethod
    async def start(cls, launch: Launch, broker: Broker, redactor: Redactor, watcher: Watcher) -> Child:
        """Start a worker and wait until its environment is constructed.

        Args:
            launch: What it is made of.
            broker: Answers its header requests.
            redactor: Cleans every text it sends.
            watcher: Told what it does outside of calls.

        Raises:
            RemoteError: loading the bundle or constructing the environment raised.
            WorkerStartError: the worker ended or ran out of time before that.
        """
        try:
            launched = await Launched.start(launch)
        except RunnerError as error:
            watcher.death(WorkerEnd(pid=0, ready=False, code=error.code, exit="", text=error.message))
            raise
        child = cls(launch, launched, broker, redactor, watcher)
        try:
            await child._start()
        except BaseException as error:
            await child.end(grace_s=0)
            if isinstance(error, RunnerError):
                watcher.death(child._obituary.account(error.code, error.message, ready=False))
            raise
        return child

    @property
    def alive(self) -> bool:
        """Whether it can still be given calls."""
        return self._state is State.READY

    @property
    def pid(self) -> int:
        """Its process id on this host."""
        return self._process.pid

    @property
    def load(self) -> int:
        """Rollouts in flight."""
        return self.conversation.load

    @property
    def full(self) -> bool:
        """Whether it does not keep up with what it is sent, so that more should wait until it is `drained`."""
        return self._work is not None and self._work.full

    async def drained(self) -> None:
        """Wait until it has read most of what it was sent, or is gone."""
        if self._work is not None:
            await self._work.drained()

    @property
    def ready(self) -> Ready:
        """What the environment said about itself."""
        return self._ready.result()

    # -- start --------------------------------------------------------------------------------------------

    async def _start(self) -> None:
        work, auth = self._launched.work, self._launched.auth
        try:
            self._work = await Channel.open(work, from_worker_decoder(), self._on_message, self._on_work_end)
            await self._auth.open(auth)
        except BaseException:
            work.close()
            auth.close()
            # nothing will ever come on them
            self._work_over.set()
            self._auth_over.set()
            raise
        scope = self._broker.construction()
        self.conversation.open_scope(scope)
        self._send(load_message(self._launch, scope.names()))
        try:
            async with asyncio.timeout(self._limits.startup_s):
                await asyncio.shield(self._ready)
        except TimeoutError:
            raise await self._late() from None
        finally:
            self.conversation.close_scope()
        if self._lie is not None or self._work_over.is_set():
            # it was ready, and that was the last of it
            await asyncio.shield(self._watching)
            raise WorkerStartError(f"{self.death}{self._obituary.last_words}")
        self._state = State.READY

    async def _late(self) -> WorkerStartError:
        if self.hello is not None:
            self._obituary.seen = await self._auth.inspector.ask_all()
        return WorkerStartError(
            f"the worker was not ready after {self._limits.startup_s:g} s ({self._phase})."
            f"{self._obituary.located}{self._obituary.last_words}",
            hint="Raise limits.startup_s if its imports or constructor take that long.",
            detail=self._obituary.stack,
        )

    @property
    def _phase(self) -> str:
        return "starting" if self.hello is None else "loading the bundle and constructing the environment"

    def _send(self, message: ToWorker) -> None:
        if self.death is not None or self._work is None:
            raise WorkerLostError(f"the worker is no longer there. {self.death}")
        self._work.send(message)
        if not self.load:
            # nothing else is about to be sent
            self._work.flush()

    # -- where it is --------------------------------------------------------------------------------------

    def _look(self, call: int, then: Callable[[str], None]) -> None:
        self._in_background(self._look_then(call, then))

    async def _look_then(self, call: int, then: Callable[[str], None]) -> None:
        seen = await self._auth.inspector.ask(call)
        then("" if seen is None else f" {self._redactor.clean(seen.text)}")

    def _kill(self) -> None:
        self._fail()
        self._in_background(self._look_and_kill())

    async def _look_and_kill(self) -> None:
        self._obituary.seen = await self._auth.inspector.ask_all() or self._stopped()
        self._process.kill()

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work, name="benchmax-look")
        self._looks.add(task)
        task.add_done_callback(self._looks.discard)

    def _signal(self) -> None:
        # before that the interpreter does not know what to do on it, and would end
        if self.hello is not None:
            self._process.signal(DUMP_SIGNAL)

    def _stopped(self) -> Sighting | None:
        return Sighting("It had been stopped by a signal.", "") if self._process.stopped else None

    # -- what the worker says -----------------------------------------------------------------------------

    def _on_message(self, message: FromWorker) -> None:
        if self.hello is None and not isinstance(message, Hello):
            raise FrameError(f"a {message.__struct_config__.tag} message, expected hello first")
        match message:
            case Hello():
                self._on_hello(message)
            case Ready():
                if self._ready.done():
                    raise FrameError("a ready message out of turn")
                self._ready.set_result(message)
            case StartFailed():
                if self._ready.done():
                    raise FrameError("a start-failed message out of turn")
                what = {"load": "loading the bundle", "construct": "constructing the environment"}.get(message.phase)
                error = remote_error(message.failure, what or "describing the environment", self._redactor)
                self._fail_start(error)
            case Loaded():
                if not self._ready.done() or self._told_loaded >= MAX_LOADED_MESSAGES:
                    raise FrameError("a loaded message out of turn")
                self._told_loaded += 1
                self._tell.loaded(message.modules)
            case Closed():
                if self._state is not State.CLOSING or self._closed.done():
                    raise FrameError("a closed message out of turn")
                self._closed.set_result(message)
            case _:
                self.conversation.on_message(message)

    def _on_hello(self, hello: Hello) -> None:
        if self.hello is not None:
            raise FrameError("a second hello")
        check_hello(hello, self._launch.metadata)
        self.hello = hello

    def _on_work_end(self, error: FrameError | None) -> None:
        self._work_over.set()
        self._on_end(error, needed=self._state is not State.CLOSING)

    def _on_auth_end(self, error: FrameError | None) -> None:
        self._auth_over.set()
        self._on_end(error, needed=False)

    def _on_end(self, error: FrameError | None, *, needed: bool) -> None:
        if error is not None and not error.unfinished:
            self._on_lie(error)
        elif error is not None or needed:
            self._fail()
            # most likely it has just died and its exit is about to be told; if not, it is of no use any more
            self._loop.call_later(EXIT_WAIT_S, self._on_silence, error)

    def _on_silence(self, error: FrameError | None) -> None:
        if error is not None and self._process.running:
            self._on_lie(error)
        self._process.kill()

    def _on_lie(self, error: FrameError) -> None:
        self._fail()
        self._lie = error
        self._process.kill()

    def _fail(self) -> None:
        if self._state is State.READY:
            self._state = State.FAILING

    # -- end ----------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Close the environment and end the worker; never takes longer than the limits say.

        Raises:
            RemoteError: the environment's `aclose` raised; the worker is gone all the same.
            WorkerLostError: the worker ended, or the limit of time passed, before `aclose` had ended.
        """
        # one that is about to be killed for a call says nothing about closing
        orderly = self._state is State.READY and not self.conversation.doubtful
        hung = False
        self.conversation.closing()
        if self._state is State.READY:
            self._state = State.CLOSING
            self._send(Close())
            await self._until(asyncio.shield(self._closed), self._process.exited(), within_s=self._limits.shutdown_s)
            hung = not self._closed.done() and self._process.running
            if hung:
                self._obituary.seen = await self._auth.inspector.ask_all() or self._stopped()
        await self.end()
        if self._closed.done():
            failure = self._closed.result().failure
            if failure is not None:
                raise remote_error(failure, "aclose", self._redactor)
        elif orderly and hung:
            raise WorkerLostError(
                f"closing the environment did not end within {self._limits.shutdown_s:g} s; its worker was killed."
                f"{self._obituary.located}{self._obituary.last_words}",
                hint="Raise limits.shutdown_s if its aclose takes that long.",
                detail=self._obituary.stack,
            )
        elif orderly:
            raise WorkerLostError(
                f"closing the environment: {self.death}{self._obituary.last_words}", detail=self._obituary.stack
            )

    async def end(self, grace_s: float = TERM_GRACE_S) -> None:
        """End the worker's process tree and remove its folder. Safe to call twice."""
        self._fail()
        if self._closed.done():
            # it leaves by itself right after its last message
            await self._until(self._process.exited(), within_s=grace_s)
        await self._process.end(grace_s)
        await asyncio.shield(self._watching)
        for task in [*self._looks]:
            task.cancel()
        if self._work is not None:
            self._work.close()
        self._auth.close()
        await asyncio.to_thread(disk.remove, str(self._launched.folder))

    def abandon(self) -> None:
        """End the worker without an event loop, when the one that it belongs to is closed; blocks until it is gone."""
        self._state = State.DEAD
        self._process.abandon()
        self._auth.inspector.close()
        self._auth.trials.abandon()
        self._launched.abandon()

    async def _until(self, *first: Awaitable[object], within_s: float) -> None:
        waits = [asyncio.ensure_future(this) for this in first]
        try:
            await asyncio.wait(waits, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _watch(self) -> None:
        """Wait for the worker's death, let what it had sent arrive, then settle everything that is open."""
        how = await self._process.wait()
        await self._launched.egress.aclose()
        read = -1
        for _ in range(EOF_ROUNDS):
            if read == (read := self._work.reads if self._work is not None else -1):
                break
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(EOF_WAIT_S):
                    await self._work_over.wait()
                    await self._auth_over.wait()
                    break
        self._obituary.exit = how
        if self._obituary.crashed:
            self._obituary.seen = self._auth.inspector.read()
        self.death = self._describe()
        state, self._state = self._state, State.DEAD
        text = f"{self.death}{self._obituary.last_words}"
        self._fail_start(self._obituary.start_error(text))
        if state in (State.READY, State.FAILING):
            self._tell.death(self._obituary.account(WorkerLostError.code, self.death, ready=True))
        self.conversation.died(Death(text, self.conversation.killed_for, self._obituary.stack))
        await self._auth.trials.aclose()

    def _describe(self) -> str:
        if self._lie is not None:
            return self._obituary.broke_the_protocol(self._lie.message)
        if self.conversation.killed_for is not None:
            return self._obituary.did_not_stop()
        busy = self.load
        if busy:
            return self._obituary.ended(f"with {busy} rollout{'s' if busy != 1 else ''} in flight")
        return self._obituary.ended("with no rollout in flight" if self._ready.done() else f"while {self._phase}")

    def _fail_start(self, error: Exception) -> None:
        if not self._ready.done():
            self._ready.set_exception(error)
            self._ready.exception()
