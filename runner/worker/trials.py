"""Asks the caller's process for the sandboxes of trials, in which commands of a rollout run.

Nothing can be sandboxed inside of a sandboxed worker. So the caller makes the sandbox beside it and hands over one end
of a stream, as a descriptor on a socket of its own.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
from typing import TYPE_CHECKING, Final, TypeVar

from ..errors import HeadersRefusedError
from ..limits import MAX_ID_CHARS
from ..protocol import TRIAL_NUMBER, OpenTrial, TrialRefused
from ..text import bounded
from .calls import CURRENT_CALL
from .headers import HeaderClient

if TYPE_CHECKING:
    from benchmax.envs.harbor.opening import SandboxRequest

_Number = TypeVar("_Number", int, float)

MAX_CPUS: Final = 10**9
MAX_NUMBER: Final = 2**63 - 1
"""What a message can say, and a limit can be."""

LIBRARY: Final = "benchmax.envs.harbor"
"""What asks for sandboxes; a release of benchmax may not have it, or not know of `opening`."""


class TrialClient:
    """The worker's way to sandboxes.

    Args:
        sock: On it they are handed over.
        client: Asks the caller.
    """

    def __init__(self, sock: socket.socket, client: HeaderClient) -> None:
        self._socket = sock
        self._client = client
        self._registered = False
        self._refusal: type[Exception] = RuntimeError
        self._receiving = threading.Lock()
        self._received: dict[int, socket.socket] = {}

    def register(self) -> None:
        """Have all sandboxes of this process come from here, once the library that asks for them is loaded."""
        if self._registered or LIBRARY not in sys.modules:
            return
        self._registered = True
        try:
            from benchmax.envs.harbor.opening import SandboxRefusedError, set_opener
        except ModuleNotFoundError:
            # that release opens none by itself
            return
        self._refusal = SandboxRefusedError
        set_opener(self.open)

    async def open(self, request: SandboxRequest) -> socket.socket:
        """Return one end of a stream, at the other end of which a sandbox is; the caller of this owns it.

        Raises:
            SandboxRefusedError: there is none to be had; the text says why.
        """
        fetching = asyncio.get_running_loop().create_task(self._fetch(request), name="benchmax-open-trial")
        try:
            return await asyncio.shield(fetching)
        except asyncio.CancelledError:
            # it may be on its way
            fetching.add_done_callback(_drop)
            raise

    async def _fetch(self, request: SandboxRequest) -> socket.socket:
        state = CURRENT_CALL.get()
        if state is None:
            raise self._refusal("a trial's sandbox was asked for outside of any call in flight.")
        try:
            answer = await self._client.sandbox(
                lambda number: OpenTrial(
                    request=number,
                    call=state.call,
                    rollout=bounded(request.rollout_id, MAX_ID_CHARS),
                    cpus=_lowering(request.cpus, MAX_CPUS),
                    memory_bytes=_lowering(request.memory_bytes, MAX_NUMBER),
                    disk_bytes=_lowering(request.disk_bytes, MAX_NUMBER),
                    network=request.network,
                )
            )
        except HeadersRefusedError as error:
            raise self._refusal(error.message) from error
        if isinstance(answer, TrialRefused):
            raise self._refusal(answer.message)
        return self._taken(answer.request)

    def _taken(self, number: int) -> socket.socket:
        """Take the sandbox of a request, which has come before its answer; others may have come before it."""
        with self._receiving:
            while number not in self._received:
                flags = socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC
                data, descriptors, _, _ = socket.recv_fds(self._socket, TRIAL_NUMBER.size, 1, flags)
                (came,) = TRIAL_NUMBER.unpack(data)
                self._received[came] = socket.socket(fileno=descriptors[0])
            taken = self._received.pop(number)
        taken.setblocking(False)
        return taken


def _lowering(value: _Number | None, most: int) -> _Number | None:
    """What a trial asks for can only lower a limit: beyond what a message can say, it lowers none."""
    return None if value is None or value > most else value


def _drop(fetching: asyncio.Task[socket.socket]) -> None:
    if not fetching.cancelled() and fetching.exception() is None:
        fetching.result().close()
