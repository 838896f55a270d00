"""The worker's main loop: handshake, then calls until `close` or the caller is gone.

Comes in: `ToWorker` messages. Goes out: `FromWorker` messages. Whatever code of the bundle does, each call is
answered by exactly one `call-done` or `call-failed`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
import threading
from collections.abc import Callable, Coroutine, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmax.auth import bind_model_auth
from benchmax.bundle import Bundle, BundleMetadata, load_bundle
from benchmax.envs.environment import Environment
from benchmax.envs.shared_types import Example, RolloutAttempt, RolloutOutcome, RolloutRequest

from ..channel import Channel
from ..errors import FrameError
from ..limits import DATASET_PART_IDS, MAX_ID_CHARS, MAX_LOADED_MESSAGES, MAX_TEXT_CHARS
from ..protocol import (
    AUTH_FD,
    BUNDLE_FD,
    PROTOCOL,
    WORK_FD,
    CallDone,
    CallFailed,
    Cancel,
    Close,
    Closed,
    CreateDataset,
    DatasetPart,
    Diagnostic,
    Expire,
    FromWorker,
    Hello,
    Load,
    Loaded,
    Log,
    Ready,
    RolloutsEnded,
    RolloutSpec,
    RunGroup,
    RunRollout,
    StartFailed,
    ToWorker,
    bounded,
    to_worker_decoder,
)
from .calls import CURRENT_CALL, CallState, Deadline
from .failure import describe
from .headers import EXIT_ORPHANED, CallerAuth, HeaderClient
from .loaded import uncompiled_modules
from .outcome import outcome_message, transcript_message
from .output import OutputBook, install
from .rollouts import RolloutGuard

START_CALL = 0
"""Call id that header requests carry while the environment is being constructed."""


class Server:
    """One worker: its environment, datasets and calls in flight."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._loop = asyncio.get_running_loop()
        self._headers = HeaderClient(socket.socket(fileno=AUTH_FD))
        self._guard = RolloutGuard(self._on_rollout_ended)
        self._calls: dict[int, CallState] = {}
        self._datasets: dict[int, list[Example[Any]]] = {}
        self._ended: dict[int, list[tuple[str, float]]] = {}
        self._book: OutputBook | None = None
        self._transcript_bytes = 0
        self._told_loaded = 0
        self._channel: Channel[ToWorker]
        self._env: Environment[Any, Any]
        self._over: asyncio.Future[None] = self._loop.create_future()

    async def run(self) -> None:
        """Serve until `close`."""
        self._headers.start()
        self._channel = await Channel.open(
            socket.socket(fileno=WORK_FD), to_worker_decoder(), self._on_message, self._on_end
        )
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        self._channel.send(Hello(protocol=PROTOCOL, python=python, benchmax=version("benchmax")))
        await self._over

    def send(self, message: FromWorker) -> None:
        """Send one message from any thread."""
        if threading.get_ident() == self._thread:
            self._channel.send(message)
        else:
            # a loop that is already closed means that the worker is ending
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._channel.send, message)

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
        install(self._book)
        bundle = Bundle(_read_bundle(), BundleMetadata.from_json_bytes(message.metadata))
        with bind_model_auth(self._bindings(START_CALL, message.bindings)):
            try:
                env_class, arguments = load_bundle(bundle, instantiate=False)
            except BaseException as error:  # noqa: BLE001 - unpickling runs code of the bundle; it may raise anything
                self._start_failed("load", error)
                return
            try:
                env = env_class(**arguments)
            except BaseException as error:  # noqa: BLE001 - the constructor is the author's
                self._start_failed("construct", error)
                return
        try:
            ready = _ready(env)
            self._guard.install(env)
            self._env = env
            self._channel.send(ready)
        except BaseException as error:  # noqa: BLE001 - properties and diagnostics are the author's, of any shape
            self._start_failed("describe", error)

    def _start_failed(self, phase: Any, error: BaseException) -> None:
        self._channel.send(StartFailed(phase=phase, failure=describe(error)))
        self._exit()

    def _bindings(self, call: int, names: list[str]) -> Mapping[str, CallerAuth]:
        return {name: CallerAuth(self._headers, call=call, binding=name) for name in names}

    def _log(self, message: Log) -> None:
        self.send(message)

    # -- calls --------------------------------------------------------------------------------------------

    def _begin(
        self, call: int, bindings: list[str], work: Coroutine[Any, Any, None], rollouts: list[str] | None = None
    ) -> None:
        state = CallState(call, frozenset(rollouts or ()), pending=set(rollouts or ()))
        self._calls[call] = state
        state.task = self._loop.create_task(self._call(state, bindings, work), name=f"benchmax-call-{call}")

    async def _call(self, state: CallState, bindings: list[str], work: Coroutine[Any, Any, None]) -> None:
        CURRENT_CALL.set(state)
        answer: FromWorker
        try:
            with bind_model_auth(self._bindings(state.call, bindings)):
                await work
        except BaseException as error:  # noqa: BLE001 - code of the bundle may raise anything, SystemExit too
            deadline = state.scoring_expired
            if deadline is not None and isinstance(error, asyncio.CancelledError):
                error = TimeoutError(deadline.message)
            answer = CallFailed(call=state.call, failure=describe(error))
        else:
            answer = CallDone(call=state.call)
        finally:
            work.close()
        state.over = True
        del self._calls[state.call]
        self._send_ended(state.call)
        if self._book is not None:
            self._book.settle(state.call)
        self._channel.send(answer)
        if state.rollouts:
            # when the answer has left; by now most of what is loaded late is loaded, too
            self._loop.call_soon(self._tell_loaded, 1)

    def _tell_loaded(self, times: int) -> None:
        if self._told_loaded < times:
            self._told_loaded = times
            if modules := uncompiled_modules():
                self._channel.send(Loaded(modules=modules))

    async def _create_dataset(self, message: CreateDataset) -> None:
        limit = {} if message.max_examples is None else {"max_examples": message.max_examples}
        dataset = await self._env.create_dataset(message.split, Path(message.base_dir), **limit)
        examples: list[Example[Any]] = []
        for example in dataset:
            if not isinstance(example, Example):
                raise TypeError(
                    f"create_dataset gave a {type(example).__name__} at position {len(examples)}, expected an Example"
                )
            examples.append(example)
        self._datasets[message.call] = examples
        for start in range(0, len(examples), DATASET_PART_IDS):
            ids = [bounded(example.id, MAX_ID_CHARS) for example in examples[start : start + DATASET_PART_IDS]]
            self._channel.send(DatasetPart(call=message.call, ids=ids))

    def _request(self, call: int, split: Any, spec: RolloutSpec) -> RolloutRequest[Any]:
        return RolloutRequest(
            spec.rollout_id,
            self._datasets[spec.dataset][spec.position],
            spec.model,
            spec.base_url,
            CallerAuth(self._headers, call=call, rollout=spec.rollout_id),
            split,
        )

    async def _run_group(self, message: RunGroup) -> None:
        requests = [self._request(message.call, message.split, spec) for spec in message.rollouts]
        state = self._calls[message.call]
        # an override may return anything
        outcomes: object = await self._env.run_group(requests)
        wanted = [request.rollout_id for request in requests]
        if not isinstance(outcomes, Mapping) or set(outcomes) != set(wanted):
            raise TypeError(f"run_group returned {_shape(outcomes)}, expected one outcome for each of {wanted}")
        for rollout_id in wanted:
            outcome = outcomes[rollout_id]
            if not isinstance(outcome, RolloutOutcome):
                raise TypeError(f"run_group gave {rollout_id!r} a {type(outcome).__name__}, expected a RolloutOutcome")
            deadline = state.expired.get(rollout_id)
            ours = deadline is not None and outcome.termination_reason == deadline.reason and not outcome.rewards
            origin: Any = "runner" if ours else "environment"
            self._channel.send(outcome_message(message.call, rollout_id, outcome, origin=origin))

    async def _run_rollout(self, message: RunRollout) -> None:
        request = self._request(message.call, message.split, message.rollout)
        attempt = await self._env.run_rollout(request)
        if not isinstance(attempt, RolloutAttempt):
            raise TypeError(f"run_rollout returned a {type(attempt).__name__}, expected RolloutAttempt")
        if attempt.rollout_id != request.rollout_id:
            raise ValueError(f"run_rollout returned wrong rollout ID {attempt.rollout_id!r} for {request.rollout_id!r}")
        self._channel.send(outcome_message(message.call, request.rollout_id, attempt, origin="environment"))

    def _on_rollout_ended(
        self, state: CallState, rollout_id: str, seconds: float, attempt: RolloutAttempt | None
    ) -> None:
        if attempt is not None:
            transcript = transcript_message(state.call, rollout_id, attempt, self._transcript_bytes)
            if transcript is not None:
                self._channel.send(transcript)
        ended = self._ended.get(state.call)
        if ended is None:
            # rollouts that end in one turn of the loop are told in one message
            self._ended[state.call] = [(rollout_id, seconds)]
            self._loop.call_soon(self._send_ended, state.call)
        else:
            ended.append((rollout_id, seconds))

    def _send_ended(self, call: int) -> None:
        ended = self._ended.pop(call, None)
        if ended:
            rollouts = [rollout for rollout, _ in ended]
            self._channel.send(RolloutsEnded(call=call, rollouts=rollouts, seconds=[seconds for _, seconds in ended]))

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
        try:
            await self._env.aclose()
        except BaseException as error:  # noqa: BLE001 - the author's aclose
            self._channel.send(Closed(failure=describe(error)))
        else:
            self._channel.send(Closed())
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


def _ready(env: Environment[Any, Any]) -> Ready:
    diagnose: Callable[[], Any] = getattr(env, "validation_diagnostics", tuple)
    return Ready(
        environment=bounded(type(env).__qualname__, MAX_ID_CHARS),
        scorable_termination_reasons=sorted(bounded(str(r), MAX_ID_CHARS) for r in env.scorable_termination_reasons),
        requires_public_model_endpoint=bool(env.requires_public_model_endpoint),
        diagnostics=[
            Diagnostic(
                severity=finding.severity,
                code=bounded(str(finding.code), MAX_TEXT_CHARS),
                message=bounded(str(finding.message), MAX_TEXT_CHARS),
                location=None if finding.location is None else bounded(str(finding.location), MAX_TEXT_CHARS),
            )
            for finding in diagnose()
        ],
    )


def _read_bundle() -> bytes:
    with os.fdopen(BUNDLE_FD, "rb") as file:
        file.seek(0)
        return file.read()


def _shape(value: object) -> str:
    return f"outcomes for {sorted(map(str, value))}" if isinstance(value, Mapping) else f"a {type(value).__name__}"


def main() -> None:
    """Run a worker on the descriptors it was started with."""

    async def serve() -> None:
        await Server().run()

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
