"""The worker's main loop: handshake, then calls until `close` or the caller is gone.

Comes in: `ToWorker` messages. Goes out: `FromWorker` messages. Whatever code of the bundle does, each call is
answered by exactly one `call-done` or `call-failed`.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Final

from benchmax.auth import bind_model_auth
from benchmax.bundle import Bundle, BundleMetadata, load_bundle
from benchmax.envs.environment import Environment
from benchmax.envs.shared_types import Example, RolloutAttempt, RolloutRequest

from ..channel import Channel
from ..errors import FrameError
from ..limits import MAX_LOADED_MESSAGES
from ..protocol import (
    AUTH_FD,
    BUNDLE_FD,
    PROTOCOL,
    START_CALL,
    TRIAL_FD,
    WORK_FD,
    CallDone,
    CallFailed,
    Cancel,
    Close,
    Closed,
    CreateDataset,
    Expire,
    Forget,
    Hello,
    Inspect,
    Load,
    Loaded,
    Log,
    RolloutSpec,
    RunGroup,
    RunRollout,
    StartFailed,
    ToWorker,
    Transcript,
    to_worker_decoder,
)
from ..spinning import Spin
from .calls import CURRENT_CALL, CallState, Deadline
from .dataset import listed
from .description import ready_message
from .ends import Ends
from .failure import describe
from .headers import EXIT_ORPHANED, CallerAuth, HeaderClient
from .loaded import uncompiled_modules
from .outcome import (
    checked_outcomes,
    has_messages,
    outcome_message,
    short_answer,
    transcript_json,
    transcript_message,
)
from .output import OutputBook, install
from .release import benchmax_version
from .rollouts import RolloutGuard, watch_transcripts
from .trials import TrialClient
from .watchdog import Watchdog, arm

COLLECT_AFTER: Final = 10_000
"""New objects before the cyclic collector looks for garbage: what some hundred rollouts hold while they run."""

Answer = CallDone | CallFailed | bytes
"""What a call is answered with; a whole frame when it had to be encoded to know that it can be."""


class Server:
    """One worker: its environment, datasets and calls in flight."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._loop = asyncio.get_running_loop()
        self._calls: dict[int, CallState] = {}
        self._headers = HeaderClient(socket.socket(fileno=AUTH_FD), self._on_inspect)
        self._trials = TrialClient(socket.socket(fileno=TRIAL_FD), self._headers)
        self._watchdog = Watchdog(self._calls, self._headers.send, self._flush_output)
        self._guard = RolloutGuard(self._on_rollout_ended)
        self._from_threads: deque[Log] = deque()
        self._datasets: dict[int, list[Example[Any]]] = {}
        self._ends = Ends(lambda message: self._channel.send(message), lambda: self._channel.flush())
        self._book: OutputBook | None = None
        self._transcript_bytes = self._dataset_examples = self._dataset_bytes = 0
        self._told_loaded = 0
        self._channel: Channel[ToWorker]
        self._env: Environment[Any, Any]
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._spin = Spin()

    async def run(self) -> None:
        """Serve until `close`."""
        self._headers.start()
        # what calls inherit that bind nothing themselves
        with bind_model_auth({}):
            await self._serve()

    async def _serve(self) -> None:
        self._channel = await Channel.open(
            socket.socket(fileno=WORK_FD), to_worker_decoder(), self._on_message, self._on_end
        )
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        self._channel.send(Hello(protocol=PROTOCOL, python=python, benchmax=benchmax_version()))
        # before the load message is read, which may run code that never comes back
        self._channel.flush()
        await self._over

    def _log(self, message: Log) -> None:
        """Send what was logged or printed, from any thread."""
        if threading.get_ident() == self._thread:
            self._channel.send(message)
            # at once: what was printed before a crash, or before code that never yields again, is what explains it
            self._channel.flush()
        else:
            self._from_threads.append(message)
            # a loop that is already closed means that the worker is ending
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._pass_on, self._channel.send)

    def _pass_on(self, send: Callable[[Log], None]) -> None:
        # the loop and, while that is blocked, the watchdog take from it
        with contextlib.suppress(IndexError):
            while True:
                send(self._from_threads.popleft())

    def _flush_output(self) -> None:
        """Send what waits for the loop to turn, or for the end of a line; called while the loop may be blocked."""
        if self._book is not None:
            self._book.send_unfinished()
        self._pass_on(self._headers.send)

    def _on_inspect(self, request: Inspect) -> None:
        self._watchdog.inspect(request)

    def _on_end(self, error: FrameError | None) -> None:
        os._exit(EXIT_ORPHANED)

    def _on_message(self, message: ToWorker) -> None:
        match message:
            case Load():
                self._load(message)
            case CreateDataset():
                self._begin(message.call, message.bindings, self._create_dataset(message))
            case RunGroup():
                rollouts = [spec.rollout_id for spec in message.rollouts]
                self._begin(message.call, message.bindings, self._run_group(message), rollouts)
            case RunRollout():
                rollouts = [message.rollout.rollout_id]
                self._begin(message.call, message.bindings, self._run_rollout(message), rollouts)
            case Expire():
                state = self._calls.get(message.call)
                if state is not None:
                    # a task that has not taken its first step would be cancelled without ever answering
                    self._loop.call_soon(state.expire, Deadline(message.reason, message.message))
            case Cancel():
                state = self._calls.get(message.call)
                if state is not None and state.task is not None:
                    self._loop.call_soon(state.task.cancel)
            case Forget():
                self._datasets.pop(message.dataset, None)
            case Close():
                self._begin_closing()

    # -- start --------------------------------------------------------------------------------------------

    def _load(self, message: Load) -> None:
        if message.protocol != PROTOCOL:
            text = f"the caller speaks protocol {message.protocol}, this worker {PROTOCOL}"
            self._start_failed("protocol", RuntimeError(text))
            return
        self._book = OutputBook(self._log, message.rollout_log_bytes)
        self._transcript_bytes = message.transcript_bytes
        self._dataset_examples, self._dataset_bytes = message.dataset_examples, message.dataset_bytes
        install(self._book)
        self._watchdog.start(message.stall_s, message.transcript_bytes)
        bundle = Bundle(_read_bundle(), BundleMetadata.from_json_bytes(message.metadata))
        with bind_model_auth(self._bindings(START_CALL, message.bindings)):
            try:
                env_class, arguments = load_bundle(bundle, instantiate=False)
            except BaseException as error:  # noqa: BLE001 - unpickling runs code of the bundle; it may raise anything
                self._start_failed("load", error)
                return
            gc.enable()
            try:
                env = env_class(**arguments)
            except BaseException as error:  # noqa: BLE001 - the constructor is the author's
                self._start_failed("construct", error)
                return
        try:
            ready = ready_message(env)
            self._guard.install(env)
            self._env = env
            self._ends.look_at(env)
            self._channel.send(ready)
        except BaseException as error:  # noqa: BLE001 - properties and diagnostics are the author's, of any shape
            self._start_failed("describe", error)
            return
        # the caller can go on meanwhile
        self._channel.flush()
        _tune_collector()

    def _start_failed(self, phase: Any, error: BaseException) -> None:
        if self._book is not None:
            self._book.settle(None)
        self._channel.send(StartFailed(phase=phase, failure=describe(error)))
        self._exit()

    def _bindings(self, call: int, names: list[str]) -> Mapping[str, CallerAuth]:
        return {name: CallerAuth(self._headers, call=call, binding=name) for name in names}

    # -- calls --------------------------------------------------------------------------------------------

    def _begin(
        self, call: int, bindings: list[str], work: Coroutine[Any, Any, Answer], rollouts: list[str] | None = None
    ) -> None:
        self._spin.end()
        self._trials.register()
        state = CallState(call, frozenset(rollouts or ()), pending=set(rollouts or ()))
        self._calls[call] = state
        if self._watchdog.resting:
            self._watchdog.wake()
        state.task = self._loop.create_task(self._call(state, bindings, work), name=f"benchmax-call-{call}")

    async def _call(self, state: CallState, bindings: list[str], work: Coroutine[Any, Any, Answer]) -> None:
        CURRENT_CALL.set(state)
        watch_transcripts()
        answer: Answer
        try:
            # without names, what is bound around the whole worker says so
            with bind_model_auth(self._bindings(state.call, bindings)) if bindings else contextlib.nullcontext():
                answer = await work
        except BaseException as error:  # noqa: BLE001 - code of the bundle may raise anything, SystemExit too
            deadline = state.scoring_expired
            if deadline is not None and isinstance(error, asyncio.CancelledError):
                error = TimeoutError(deadline.message)
            answer = CallFailed(call=state.call, failure=describe(error))
        finally:
            work.close()
        state.over = True
        # its context knows the state, too: a circle that only the cyclic collector would find
        state.task = None
        del self._calls[state.call]
        if self._book is not None:
            self._book.settle(state.call)
        if isinstance(answer, bytes):
            self._channel.send_frame(answer)
        else:
            self._ends.tell(state)
            self._channel.send(answer)
        if not self._calls:
            # nothing else is about to be sent
            self._channel.flush()
            self._spin.begin()
        if state.rollouts and not self._told_loaded:
            # when the answer has left; by now most of what is loaded late is loaded, too
            self._loop.call_soon(self._tell_loaded, 1)

    def _tell_loaded(self, times: int) -> None:
        if self._told_loaded < times:
            self._told_loaded = times
            if modules := uncompiled_modules():
                self._channel.send(Loaded(modules=modules))

    async def _create_dataset(self, message: CreateDataset) -> Answer:
        limit = {} if message.max_examples is None else {"max_examples": message.max_examples}
        dataset = await self._env.create_dataset(message.split, Path(message.base_dir), **limit)
        self._datasets[message.call], parts = listed(
            dataset, message.call, most_examples=self._dataset_examples, most_bytes=self._dataset_bytes
        )
        for part in parts:
            self._channel.send(part)
        return CallDone(call=message.call)

    def _request(self, call: int, split: Any, spec: RolloutSpec) -> RolloutRequest[Any]:
        return RolloutRequest(
            spec.rollout_id,
            self._datasets[spec.dataset][spec.position],
            spec.model,
            spec.base_url,
            CallerAuth(self._headers, call=call, rollout=spec.rollout_id),
            split,
        )

    async def _run_group(self, message: RunGroup) -> Answer:
        requests = [self._request(message.call, message.split, spec) for spec in message.rollouts]
        state = self._calls[message.call]
        # an override may return anything
        returned: object = await self._env.run_group(requests)
        outcomes = checked_outcomes(returned, [request.rollout_id for request in requests])
        frame = None if state.expired else short_answer(state.call, outcomes, state.seconds)
        if frame is not None:
            return frame
        self._ends.tell(state)
        for rollout_id, outcome in outcomes.items():
            deadline = state.expired.get(rollout_id)
            ours = deadline is not None and outcome.termination_reason == deadline.reason and not outcome.rewards
            origin: Any = "runner" if ours else "environment"
            await self._room()
            self._channel.send(outcome_message(message.call, rollout_id, outcome, origin=origin))
        return CallDone(call=message.call)

    async def _room(self) -> None:
        """Wait while the caller does not keep up."""
        while self._channel.full:
            await self._channel.drained()

    async def _run_rollout(self, message: RunRollout) -> Answer:
        request = self._request(message.call, message.split, message.rollout)
        attempt = await self._env.run_rollout(request)
        if not isinstance(attempt, RolloutAttempt):
            raise TypeError(f"run_rollout returned a {type(attempt).__name__}, expected RolloutAttempt")
        if attempt.rollout_id != request.rollout_id:
            raise ValueError(f"run_rollout returned wrong rollout ID {attempt.rollout_id!r} for {request.rollout_id!r}")
        self._channel.send(outcome_message(message.call, request.rollout_id, attempt, origin="environment"))
        return CallDone(call=message.call)

    def _on_rollout_ended(
        self,
        state: CallState,
        rollout_id: str,
        seconds: float,
        attempt: RolloutAttempt | None,
        messages: list[Any] | None,
    ) -> Coroutine[Any, Any, None] | None:
        self._ends.add(state, rollout_id, seconds)
        if attempt is None:
            # it raises, and what was said until then tells why; there is no waiting before that
            if messages is not None:
                data, omitted = transcript_json(messages, self._transcript_bytes)
                self._channel.send(
                    Transcript(call=state.call, rollout_id=rollout_id, messages=data, omitted_bytes=omitted)
                )
            return None
        return self._send_transcript(state, rollout_id, attempt) if has_messages(attempt) else None

    async def _send_transcript(self, state: CallState, rollout_id: str, attempt: RolloutAttempt) -> None:
        await self._room()
        transcript = transcript_message(state.call, rollout_id, attempt, self._transcript_bytes)
        if transcript is not None:
            self._channel.send(transcript)

    # -- end ----------------------------------------------------------------------------------------------

    def _begin_closing(self) -> None:
        state = CallState(START_CALL)
        state.task = self._loop.create_task(self._close(), name="benchmax-close")
        self._calls[START_CALL] = state

    async def _close(self) -> None:
        tasks = [state.task for state in self._calls.values() if state.task not in (None, asyncio.current_task())]
        for task in tasks:
            task.cancel()
        if tasks:
            # what they release in their own `finally` comes before the environment's aclose; the caller bounds the wait
            await asyncio.wait(tasks)
        self._tell_loaded(MAX_LOADED_MESSAGES)
        answer = Closed()
        try:
            await self._env.aclose()
        except BaseException as error:  # noqa: BLE001 - the author's aclose
            answer = Closed(failure=describe(error))
        if self._book is not None:
            self._book.settle(None)
        self._channel.send(answer)
        self._exit()

    def _exit(self) -> None:
        """End at once after what was sent has left: a bundle's threads and exit hooks do not get to keep us."""
        self._channel.flush()
        task = self._loop.create_task(self._leave())
        self._over.add_done_callback(lambda _: task.cancel())

    async def _leave(self) -> None:
        while self._channel.unsent():
            await self._channel.drained()
            await asyncio.sleep(0)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(0)


def _tune_collector() -> None:
    """Keep the cyclic collector off what is there to stay, and from starting over for every handful of rollouts."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, *gc.get_threshold()[1:])


def _read_bundle() -> bytes:
    with os.fdopen(BUNDLE_FD, "rb") as file:
        file.seek(0)
        return file.read()


def main() -> None:
    """Run a worker on the descriptors it was started with."""

    async def serve() -> None:
        await Server().run()

    arm()
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        loop.run_until_complete(serve())
    except SystemExit as error:
        # code of the bundle ended the program; nothing more is done in its name, not even cancelling its tasks
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        if isinstance(error.code, str):
            # as the interpreter would
            os.write(2, error.code.encode("utf-8", "backslashreplace") + b"\n")
        os._exit(error.code if isinstance(error.code, int) else int(error.code is not None))
