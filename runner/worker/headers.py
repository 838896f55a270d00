"""Asks the caller's process for headers, from any thread and event loop, also while the main loop is blocked.

A request is written by whoever makes it. The main loop reads the answers while it turns; one small thread stands by
and reads when it does not, or when somebody outside of the main loop waits. What else has to be said while the main
loop is blocked goes this way too, and what else is asked of the caller from anywhere (see `trials`).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import select
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Final

from benchmax.auth import ModelRequestContext
from benchmax.envs.logging import _CURRENT_ROLLOUT_ID

from ..errors import CredentialSourceError, FrameError, HeaderLimitError, HeadersRefusedError
from ..frames import FrameParser
from ..limits import MAX_ID_CHARS, MAX_TEXT_CHARS, MAX_URL_CHARS
from ..protocol import (
    AuthFromWorker,
    AuthToWorker,
    HeaderRequest,
    Headers,
    HeadersRefused,
    Inspect,
    OpenTrial,
    TrialOpened,
    TrialRefused,
    auth_to_worker_decoder,
    encode,
)
from ..text import bounded
from .calls import CURRENT_CALL

RECV_BYTES = 64 * 1024
EXIT_ORPHANED = 70
"""Exit code of a worker whose caller went away."""

STANDBY_S = 0.01
"""How long what has arrived is left to the main loop: handing an answer from thread to thread takes longer than all
else there is to do for it."""

REFUSALS: Final = {kind.__name__: kind for kind in (HeadersRefusedError, HeaderLimitError, CredentialSourceError)}

Answer = Headers | HeadersRefused | TrialOpened | TrialRefused
Waiter = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Answer]"]
Told = tuple["asyncio.Future[Answer]", Answer]


class HeaderClient:
    """The worker's end of the auth channel; belongs to the loop it is made on.

    Args:
        sock: The channel.
        on_inspect: Told, on any thread, that the caller wants to know where the rollouts are.
    """

    def __init__(self, sock: socket.socket, on_inspect: Callable[[Inspect], None]) -> None:
        self._socket = sock
        self._on_inspect = on_inspect
        self._main = asyncio.get_running_loop()
        self._main_thread = threading.get_ident()
        self._process = os.getpid()
        self._decoder = auth_to_worker_decoder()
        self._parser = FrameParser()
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Waiter] = {}
        self._elsewhere = 0
        self._urgent = threading.Event()
        """Set while somebody outside of the main loop waits."""
        self._counting = threading.Lock()
        self._reading = threading.Lock()
        self._sending = threading.Lock()
        self._held: list[bytes] | None = None
        """Requests of this turn of the main loop after the first one, which leave together."""
        self._thread = threading.Thread(target=self._stand_by, name="benchmax-headers", daemon=True)

    def start(self) -> None:
        """Start serving."""
        self._main.add_reader(self._socket, self._read)
        self._thread.start()

    def send(self, message: AuthFromWorker) -> None:
        """Send one message, from any thread; the caller always reads, so that this blocks no longer than that takes."""
        self._write(encode(message))

    async def headers(
        self, context: ModelRequestContext, *, call: int, binding: str | None, rollout: str | None
    ) -> Mapping[str, str]:
        """Ask for the headers of one model request.

        Raises:
            HeadersRefusedError: the caller refused, is gone, or this is a forked process; the text says why.
            HeaderLimitError: the rollout or this worker has asked too often.
            CredentialSourceError: the caller's credential source failed.
        """
        if os.getpid() != self._process:
            raise HeadersRefusedError("headers were asked for in a process that was forked from the worker.")
        number = next(self._numbers)
        request = HeaderRequest(
            request=number,
            call=call,
            binding=binding,
            rollout=rollout,
            base_url=bounded(str(context.base_url), MAX_URL_CHARS),
            model=bounded(str(context.model), MAX_TEXT_CHARS),
            rollout_id=bounded(str(context.rollout_id), MAX_ID_CHARS),
        )
        answer = await self._answer(number, request)
        if isinstance(answer, Headers):
            return answer.headers
        if isinstance(answer, HeadersRefused):
            raise REFUSALS.get(answer.failure.type, HeadersRefusedError)(answer.failure.message)
        # an honest caller answers what was asked
        os._exit(EXIT_ORPHANED)

    async def sandbox(self, request: Callable[[int], OpenTrial]) -> TrialOpened | TrialRefused:
        """Ask for the sandbox of a trial.

        Args:
            request: Makes the message, from the number that it is to have.

        Raises:
            HeadersRefusedError: the caller is gone, or this is a forked process.
        """
        if os.getpid() != self._process:
            raise HeadersRefusedError("a sandbox was asked for in a process that was forked from the worker.")
        number = next(self._numbers)
        answer = await self._answer(number, request(number))
        if isinstance(answer, TrialOpened | TrialRefused):
            return answer
        os._exit(EXIT_ORPHANED)

    # -- out ----------------------------------------------------------------------------------------------

    async def _answer(self, number: int, request: HeaderRequest | OpenTrial) -> Answer:
        """Send a request and wait for its answer; only in the worker's own process, or two would read one channel."""
        frame = encode(request)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer] = loop.create_future()
        self._waiting[number] = loop, future
        elsewhere = loop is not self._main
        if elsewhere:
            self._count(1)
        try:
            self._ask(frame, elsewhere=elsewhere)
            return await future
        finally:
            self._waiting.pop(number, None)
            if elsewhere:
                self._count(-1)

    def _ask(self, frame: bytes, *, elsewhere: bool) -> None:
        if not elsewhere and self._held is not None:
            self._held.append(frame)
            return
        if not elsewhere:
            self._held = []
            self._main.call_soon(self._flush)
        try:
            self._write(frame)
        except OSError:
            raise HeadersRefusedError("the caller's process is gone.") from None

    def _flush(self) -> None:
        frames, self._held = self._held, None
        if frames:
            # whoever reads sees the same error and ends this process
            with contextlib.suppress(OSError):
                self._write(b"".join(frames))

    def _write(self, data: bytes) -> None:
        with self._sending:
            self._socket.sendall(data)

    def _count(self, step: int) -> None:
        with self._counting:
            self._elsewhere += step
            if self._elsewhere:
                self._urgent.set()
            else:
                self._urgent.clear()

    # -- in -----------------------------------------------------------------------------------------------

    def _stand_by(self) -> None:
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        while True:
            poll.poll()
            self._urgent.wait(STANDBY_S)
            self._read()

    def _read(self) -> None:
        """Take in what has arrived, if nobody else just does."""
        told: dict[asyncio.AbstractEventLoop, list[Told]] = {}
        with self._reading:
            try:
                data = self._socket.recv(RECV_BYTES, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                # the caller is gone; the main loop may be blocked in code of the bundle and never learn of it
                os._exit(EXIT_ORPHANED)
            try:
                for body in self._parser.feed(data):
                    self._take(self._decoder.decode(body), told)
            except FrameError:
                os._exit(EXIT_ORPHANED)
        for loop, answers in told.items():
            if loop is self._main and threading.get_ident() == self._main_thread:
                _tell(answers)
            else:
                # a loop that was closed meanwhile has nobody left who waits
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(_tell, answers)

    def _take(self, message: AuthToWorker, told: dict[asyncio.AbstractEventLoop, list[Told]]) -> None:
        if isinstance(message, Inspect):
            self._on_inspect(message)
            return
        waiter = self._waiting.pop(message.request, None)
        if waiter is not None:
            loop, future = waiter
            told.setdefault(loop, []).append((future, message))


def _tell(answers: list[Told]) -> None:
    for future, message in answers:
        if not future.done():
            future.set_result(message)


class CallerAuth:
    """A credential source that lives in the caller's process; satisfies `benchmax.auth.ModelAuth`.

    Args:
        client: Where to ask.
        call: The call it belongs to; it answers no longer than that call is in flight.
        binding: Name under which the caller bound it, or `None` for the auth of a rollout's own request.
        rollout: The rollout whose request it belongs to, or `None` for a binding.
    """

    __slots__ = ("_binding", "_call", "_client", "_rollout")

    def __init__(self, client: HeaderClient, *, call: int, binding: str | None = None, rollout: str | None = None):
        self._client = client
        self._call = call
        self._binding = binding
        self._rollout = rollout

    async def headers_for_request(self, context: ModelRequestContext) -> Mapping[str, str]:
        """Ask the caller for the headers of one request.

        Raises:
            HeadersRefusedError: there are none; its subclasses and the text say why.
        """
        rollout = self._rollout if self._binding is None else self._current_rollout()
        return await self._client.headers(context, call=self._call, binding=self._binding, rollout=rollout)

    def _current_rollout(self) -> str | None:
        """The rollout that asks, if it is one: what siblings ask under a binding is kept apart."""
        state = CURRENT_CALL.get()
        if state is None or state.call != self._call:
            return None
        rollout_id = _CURRENT_ROLLOUT_ID.get()
        if rollout_id is None and len(state.rollouts) == 1 and state.running:
            # a single rollout, which runs without the context of a group's
            (rollout_id,) = state.rollouts
        return rollout_id if rollout_id in state.rollouts else None

    def __repr__(self) -> str:
        return f"CallerAuth({self._binding or 'request'!r})"

    def __copy__(self) -> CallerAuth:
        return self

    def __deepcopy__(self, memo: object) -> CallerAuth:
        # a request may be copied, as in process; the copy asks in the same place
        return self

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a credential source of the caller's process cannot be pickled")
