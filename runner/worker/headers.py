"""Asks the caller's process for headers, from any thread and event loop, also while the main loop is blocked.

The auth channel is served by one small thread of its own. A request is written by whoever makes it; the thread hands
the answer to the waiting future.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import threading
from collections.abc import Mapping
from concurrent.futures import Future

from benchmax.auth import ModelRequestContext

from ..errors import FrameError, HeadersRefusedError
from ..limits import MAX_ID_CHARS, MAX_TEXT_CHARS, MAX_URL_CHARS
from ..protocol import FrameParser, HeaderRequest, Headers, HeadersRefused, auth_to_worker_decoder, bounded, encode

RECV_BYTES = 64 * 1024
EXIT_ORPHANED = 70
"""Exit code of a worker whose caller went away."""


class HeaderClient:
    """The worker's end of the auth channel."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._decoder = auth_to_worker_decoder()
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Future[Mapping[str, str]]] = {}
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._serve, name="benchmax-headers", daemon=True)

    def start(self) -> None:
        """Start serving."""
        self._thread.start()

    async def headers(
        self, context: ModelRequestContext, *, call: int, binding: str | None, rollout: str | None
    ) -> Mapping[str, str]:
        """Ask for the headers of one model request.

        Raises:
            HeadersRefusedError: the caller refused, or its provider raised; the text says why.
        """
        number = next(self._numbers)
        frame = encode(
            HeaderRequest(
                request=number,
                call=call,
                binding=binding,
                rollout=rollout,
                base_url=bounded(str(context.base_url), MAX_URL_CHARS),
                model=bounded(str(context.model), MAX_TEXT_CHARS),
                rollout_id=bounded(str(context.rollout_id), MAX_ID_CHARS),
            )
        )
        future: Future[Mapping[str, str]] = Future()
        with self._lock:
            self._waiting[number] = future
            # a request is far smaller than the socket's buffer and the other end always reads
            self._socket.sendall(frame)
        try:
            return await asyncio.wrap_future(future)
        finally:
            with self._lock:
                self._waiting.pop(number, None)

    def _serve(self) -> None:
        parser = FrameParser()
        while True:
            try:
                data = self._socket.recv(RECV_BYTES)
            except OSError:
                data = b""
            if not data:
                # the caller is gone; the main loop may be blocked in code of the bundle and never learn of it
                os._exit(EXIT_ORPHANED)
            try:
                for body in parser.feed(data):
                    self._answer(self._decoder.decode(body))
            except FrameError:
                os._exit(EXIT_ORPHANED)

    def _answer(self, message: Headers | HeadersRefused) -> None:
        with self._lock:
            future = self._waiting.pop(message.request, None)
        if future is None or not future.set_running_or_notify_cancel():
            return
        if isinstance(message, Headers):
            future.set_result(message.headers)
        else:
            future.set_exception(HeadersRefusedError(f"{message.failure.message}"))


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
        """Ask the caller for the headers of one request."""
        return await self._client.headers(context, call=self._call, binding=self._binding, rollout=self._rollout)

    def __repr__(self) -> str:
        return f"CallerAuth({self._binding or 'request'!r})"

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a credential source of the caller's process cannot be pickled")
